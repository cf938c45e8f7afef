"""Common parts of the operations on whole networks: packed weights and positional encoding.

The layers of a network are packed into one vector: matrix, then bias, layer by layer. A layer is (matrix [out, in],
bias [out]) or, if its matrix is g v / |v| row by row (weight normalisation, arXiv 1602.07868, eq. 2), (v [out, in],
g [out, 1], bias [out]). Packing is differentiable once, with respect to all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.sizes import BLOCK, PAD, TILE_ENCODED, TILE_LAYERS, TILE_WIDTH
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


pack = Kernel(_reference, cpu=lambda layers: _native([matrix_and_bias(parts) for parts in layers]), cuda=_native)


class Weights:
    """The current linear layers of a network.

    Create it once for all evaluations of a rendering, so that weights are packed once. Create it outside `no_grad` if
    some evaluations are within: a Var that is first computed within `no_grad` never has gradients.
    """

    def __init__(self, layers: Sequence[Parts]) -> None:
        """The layers as in `pack`."""
        self._parts = list(layers)
        # One vector, layer by layer, for the native operations. Jittor is lazy: an unused vector is not computed.
        self.packed = pack(self._parts)

    @property
    def layers(self) -> list[tuple[Var, Var]]:
        """(matrix [out, in], bias [out]) of each."""
        return [matrix_and_bias(parts) for parts in self._parts]


def network_source(header: str, layout: type, **constants: float) -> Source:
    """The native source of a network."""
    sizes = {"BLOCK": BLOCK, "PAD": PAD, "TILE_WIDTH": TILE_WIDTH, "TILE_ENCODED": TILE_ENCODED}
    return Source(header, (layout,), (*sizes.items(), ("TILE_LAYERS", TILE_LAYERS), *constants.items()))


def shapes32(*shapes: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
    """float32 outputs of these shapes."""
    return [(tuple(shape), "float32") for shape in shapes]


def filled(cotangents: Sequence[Var | None], shapes: Sequence[tuple[int, ...]]) -> list[Var]:
    """Cotangents of outputs, zeros for those that the loss does not depend on."""
    return [jt.zeros(shape) if value is None else value for value, shape in zip(cotangents, shapes, strict=True)]


def positional_encoding(x: Var, frequencies: int) -> Var:
    """gamma(x): [P, D] -> [P, D (1 + 2 L)]; x itself if L = 0 (see `sizes.encoding_width`)."""
    if frequencies == 0:
        return x
    parts = [x]
    for level in range(frequencies):
        angle = x * float(2**level)
        parts += [angle.sin(), angle.cos()]
    return jt.concat(parts, dim=1)


def positional_encoding_vjp(x: Var, cotangent: Var, frequencies: int) -> Var:
    """Transposed Jacobian of the encoding: (d gamma / d x)^T cotangent, [P, D (1 + 2 L)] -> [P, D].

    Uses ordinary operations, so it is differentiable again.
    """
    if frequencies == 0:
        return cotangent
    width = x.shape[1]
    total = cotangent[:, :width]
    for level in range(frequencies):
        scale, start = float(2**level), width * (1 + 2 * level)
        angle = x * scale
        into_sine = cotangent[:, start : start + width]
        into_cosine = cotangent[:, start + width : start + 2 * width]
        total = total + (angle.cos() * into_sine - angle.sin() * into_cosine) * scale
    return total
