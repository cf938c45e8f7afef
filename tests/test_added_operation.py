"""An operation from outside: a layout, a reference and a header; and that no test replaces what it should choose."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import numpy as np
import pytest
from runs import ROOT

from models.machine.backend import device_info, jt
from models.ops.kernel import NATIVE, REFERENCE, Kernel, use
from models.ops.source import Source
from models.structs import Var


@dataclass(frozen=True)
class Blend:
    """The layout of the toy operation."""

    share: float
    shifts: tuple[int, ...]


HEADER = """#pragma once
#include "shift.h"
namespace neus {
inline void blend(const Blend &sizes, long rows, const float *first, const float *second, float *mixed) {
    for (long i = 0; i < rows; i++)
        mixed[i] = SCALE * (sizes.share * first[i] + (1.0f - sizes.share) * second[i]) + shift(sizes);
}
}  // namespace neus
"""
SHIFT = """#pragma once
namespace neus {
inline float shift(const Blend &sizes) {
    float total = 0.0f;
    for (int value : sizes.shifts) total += value;
    return total;
}
}  // namespace neus
"""


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
        return (first * sizes.share + second * (1.0 - sizes.share)) * 2.0 + float(sum(sizes.shifts))

    def native(first: Var, second: Var, sizes: Blend) -> Var:
        ran.append(NATIVE)
        return source.call("blend", sizes, [(tuple(first.shape), "float32")], [first, second])[0]

    return Kernel(reference, cpu=native), ran


@pytest.mark.skipif(device_info().name != "cpu", reason="its native form is for the CPU")
@pytest.mark.parametrize("sizes", [Blend(0.25, (1, 2, 3)), Blend(0.5, ())])
def test_an_operation_is_a_module_and_a_header_and_its_form_is_chosen_by_use(blend, sizes):
    kernel, ran = blend
    first, second = (jt.array(np.random.default_rng(seed).normal(size=7).astype(np.float32)) for seed in (0, 1))
    ran.clear()
    with use(REFERENCE):
        expected = kernel(first, second, sizes).numpy()
        with use(NATIVE):
            kernel(first, second, sizes)
    np.testing.assert_allclose(kernel(first, second, sizes).numpy(), expected, rtol=1e-6, atol=1e-6)
    assert ran == [REFERENCE, NATIVE, NATIVE]


OPS = "models.ops"


def replaced_operations(text):
    """The lines of a module on which something of models.ops is set: by setattr, by monkeypatch, by assignment."""
    tree = ast.parse(text)
    names = {OPS.split(".")[-1]: OPS}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("models"):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}

    def leads_to_ops(node):
        if isinstance(node, ast.Constant):
            return str(node.value).startswith(OPS + ".")
        text = ast.unparse(node)
        root, dot, rest = text.partition(".")
        return f"{names.get(root, root)}{dot}{rest}".startswith(OPS + ".")

    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("setattr", "setitem", "patch", "patch.object")
        ):
            found += [node.lineno] if node.args and leads_to_ops(node.args[0]) else []
        targets = node.targets if isinstance(node, ast.Assign) else []
        found += [node.lineno for target in targets if isinstance(target, ast.Attribute) and leads_to_ops(target.value)]
    return found


@pytest.mark.slow
def test_no_test_and_no_benchmark_replaces_anything_of_ops():
    paths = [*(ROOT / "tests").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    found = {path.name: replaced_operations(path.read_text(encoding="utf-8")) for path in paths}
    assert len(paths) > 50 and not {name: lines for name, lines in found.items() if lines}
