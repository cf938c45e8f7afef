"""Common parts of the operations on whole networks: bound weights and positional encoding."""

from __future__ import annotations

from collections.abc import Sequence

from models.machine.backend import jt
from models.ops.packing import Parts, matrix_and_bias, pack
from models.ops.sizes import BLOCK, PAD, TILE_ENCODED, TILE_LAYERS, TILE_WIDTH
from models.ops.source import Source
from models.structs import Var


class Weights:
    """The current linear layers of a network.

    Create it once for all evaluations of a rendering, so that weights are packed once. Create it outside `no_grad` if
    some evaluations are within: a Var that is first computed within `no_grad` never has gradients.
    """

    def __init__(self, layers: Sequence[Parts]) -> None:
        """The layers as in `packing`."""
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
