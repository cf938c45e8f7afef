"""An operation from outside: a layout, a reference and a header, and the form that `use` chooses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from models.machine.backend import device_info, jt
from models.ops.source import NATIVE, REFERENCE, Kernel, Source, use
from models.structs import Var


@dataclass(frozen=True)
class Blend:
    """The layout of the toy operation."""

    share: float
    shift: int


HEADER = """#pragma once
#include "shift.h"
namespace neus {
inline void blend(const Blend &sizes, long rows, const float *first, const float *second, float *mixed) {
    for (long i = 0; i < rows; i++)
        mixed[i] = SCALE * (sizes.share * first[i] + (1.0f - sizes.share) * second[i]) + shift(sizes);
}
}  // namespace neus
"""
SHIFT = "#pragma once\nnamespace neus { inline float shift(const Blend &sizes) { return sizes.shift; } }\n"


@pytest.fixture(scope="module")
def blend(tmp_path_factory):
    """An operation: its reference and its native form, whose text lies in a folder of its own; and which one ran."""
    folder = tmp_path_factory.mktemp("csrc")
    for name, text in (("cpu/blend.h", HEADER), ("both/shift.h", SHIFT)):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    source, ran = Source("blend.h", (Blend,), (("SCALE", 2.0),), folder=folder), []

    def reference(first: Var, second: Var, sizes: Blend) -> Var:
        ran.append(REFERENCE)
        return (first * sizes.share + second * (1.0 - sizes.share)) * 2.0 + float(sizes.shift)

    def native(first: Var, second: Var, sizes: Blend) -> Var:
        ran.append(NATIVE)
        return source.call("blend", sizes, [(tuple(first.shape), "float32")], [first, second])[0]

    return Kernel(reference, cpu=native), ran


@pytest.mark.skipif(device_info().name != "cpu", reason="its native form is for the CPU")
@pytest.mark.parametrize("sizes", [Blend(0.25, 6), Blend(0.5, 0)])
def test_an_operation_is_a_module_and_a_header_and_use_chooses_its_form(blend, sizes):
    kernel, ran = blend
    first, second = (jt.array(np.random.default_rng(seed).normal(size=7).astype(np.float32)) for seed in (0, 1))
    ran.clear()
    with use(REFERENCE):
        expected = kernel(first, second, sizes).numpy()
        with use(NATIVE):
            kernel(first, second, sizes)
    np.testing.assert_allclose(kernel(first, second, sizes).numpy(), expected, rtol=1e-6, atol=1e-6)
    assert ran == [REFERENCE, NATIVE, NATIVE]
