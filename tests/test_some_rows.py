"""Products, sums and element-wise work on rows whose number only the GPU knows, several tiles in each direction."""

import shutil
from dataclasses import dataclass

import numpy as np
import pytest
from forms import CUDA_FORMS, EMULATED, in_form

from models.machine.backend import jt
from models.ops.network import network_source
from models.ops.source import CSRC, CUDA

ROWS, COLUMNS, DEPTH = 300, 70, 131  # a tile has 128 rows, 64 columns and a depth of 16; a slice a depth of 64
HEADER = """#pragma once
#include "layers.h"
#include "some_rows.h"
namespace neus {
inline void some_rows(const Shape &is, long most, const float *a, const float *b, const float *turned, const float *d,
                      const int *count, float *forward, float *back, float *outer, float *sums, float *doubled) {
    const SomeRows rows{most, count, is.begin};
    product(rows, is.columns, is.depth, 2.f, a, is.depth, false, turned, is.depth, true, 0.f, forward, is.columns);
    for (float kept : {0.f, 1.f})
        product(rows, is.columns, is.depth, 1.f, a, is.depth, false, b, is.columns, false, kept, back, is.columns);
    clear(outer, (long)is.depth * is.columns);
    product(is.depth, is.columns, rows, 2.f, a, is.depth, true, d, is.columns, false, 1.f, outer, is.columns);
    clear(sums, is.columns);
    add_columns(rows, is.columns, 1.f, d, is.columns, sums);
    each_place(rows, is.columns, [=] __device__(int, int, long at) { doubled[at] = 2.f * d[at]; });
}
}
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of the operation."""

    columns: int
    depth: int
    begin: int


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """An operation of one call of each function, beside the sources that it includes."""
    folder = tmp_path_factory.mktemp("csrc")
    for part in (CUDA, "both"):
        shutil.copytree(CSRC / part, folder / part)
    (folder / CUDA / "check.h").write_text(HEADER)
    base = network_source("check.h", Shape)
    return type(base)("check.h", base.layouts, base.constants, folder=folder)


@pytest.mark.parametrize("form", CUDA_FORMS)
@pytest.mark.parametrize(("count", "begin"), [(400, 0), (129, 0), (200, 96), (0, 0)])
def test_what_is_computed_is_that_of_the_rows_there_are(source, form, count, begin):
    rng = np.random.default_rng(0)
    shapes = ((ROWS, DEPTH), (DEPTH, COLUMNS), (COLUMNS, DEPTH), (ROWS, COLUMNS))
    a, b, turned, d = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    used = min(max(count - begin, 0), ROWS)
    a[used:], d[used:] = 1e30, 1e30
    outputs = [(shape, "float32") for shape in (shapes[3], shapes[3], shapes[1], (COLUMNS,), shapes[3])]
    with in_form(form):
        inputs = [*map(jt.array, (a, b, turned, d)), jt.array(np.int32([count]))]
        found = source.call("some_rows", Shape(COLUMNS, DEPTH, begin), outputs, inputs)
        forward, back, outer, sums, doubled = (value.numpy() for value in found)
    some_a, some_d = a[:used].astype(np.float64), d[:used].astype(np.float64)
    expected = (2 * some_a @ turned.T, 2 * some_a @ b, 2 * some_a.T @ some_d, some_d.sum(axis=0))
    for ours, theirs in zip((forward[:used], back[:used], outer, sums), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    np.testing.assert_array_equal(doubled[:used], 2 * d[:used])
    if form in EMULATED:  # outputs hold NaN at first
        assert all(np.isnan(value[used:]).all() for value in (forward, back, doubled))
