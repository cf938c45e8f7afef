"""Pack the linear layers of a network into one vector for the native operations: matrix, then bias, layer by layer.

A layer is (matrix [out, in], bias [out]) or, if its matrix is g v / |v| row by row (weight normalisation, arXiv
1602.07868, eq. 2), (v [out, in], g [out, 1], bias [out]). Differentiable once, with respect to all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var

Parts = tuple[Var, ...]  # the arrays of a layer
NORMED = 3  # number of arrays of a layer with weight normalisation


@dataclass(frozen=True)
class Packing:
    """The sizes and constants that reference and native source share."""

    widths: tuple[int, ...]  # inputs and outputs of each layer
    normed: tuple[int, ...]  # 1 for a layer with weight normalisation, else 0


SOURCE = Source("packing.h", (Packing,), lists=True)


def matrix_and_bias(parts: Parts) -> tuple[Var, Var]:
    """The matrix and bias of a layer."""
    if len(parts) < NORMED:
        return parts
    direction, length, bias = parts
    return direction * (length / direction.sqr().sum(dim=1, keepdims=True).sqrt()), bias


def _reference(layers: Sequence[Parts]) -> Var:
    """All layers as one vector [parameters]."""
    matrices = [matrix_and_bias(parts) for parts in layers]
    return jt.concat([part.reshape((-1,)) for layer in matrices for part in layer], dim=0)


def _native(layers: Sequence[Parts]) -> Var:
    widths = tuple(width for parts in layers for width in reversed(parts[0].shape))
    layout = Packing(widths, tuple(int(len(parts) == NORMED) for parts in layers))
    total = sum((columns + 1) * rows for columns, rows in zip(widths[::2], widths[1::2], strict=True))
    inputs = [part for parts in layers for part in parts]
    return SOURCE.differentiable("pack", layout, [(total,)], inputs)


def _native_after_norm(layers: Sequence[Parts]) -> Var:
    return _native([matrix_and_bias(parts) for parts in layers])


pack = Kernel(_reference, cpu=_native_after_norm, cuda=_native)
