"""The layouts of the networks: their sizes by name, as conf, reference and native text all read them. Knows no Jittor.

Positional encoding (NeRF, arXiv 2003.08934, eq. 4, with the input itself in front and no factor of pi):
gamma(x) = (x, sin x, cos x, sin 2x, cos 2x, ..., sin 2^(L-1) x, cos 2^(L-1) x), each block of the width of x.
The order is that of the published NeuS: https://github.com/Totoro97/NeuS/blob/6e0a230/models/embedder.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Points per block of the native operations: what a layer of 256 channels reads and writes fits the second-level cache.
BLOCK = 64
PAD = 16  # widths are laid out in multiples of it: the vectors of the widest processors
SOFTPLUS_BETA = 100.0  # sharpness of the activation: nearly a ReLU, yet twice differentiable (IDR)
SKIP_SCALE = 1.0 / math.sqrt(2.0)  # keeps the variance of a layer's input where the encoded point is appended to it


def encoding_width(width: int, frequencies: int) -> int:
    """Channels of the encoding of `width` channels; `frequencies` = 0 encodes nothing."""
    return width * (1 + 2 * frequencies)


def padded(width: int) -> int:
    """Channels as the native operations lay them out."""
    return -(-width // PAD) * PAD


def row_stride(width: int) -> int:
    """Numbers from one row of an activation to the next (`stride_of` of csrc/cpu/tile.h)."""
    return padded(width) + PAD


@dataclass(frozen=True)
class SdfSizes:
    """A signed-distance network."""

    layers: int
    encoded: int  # channels of the encoded point
    octaves: int
    skips: int  # bit l is set where the input of layer l ends with the encoded point
    widths: tuple[int, ...]  # inputs and outputs of each layer, one pair after the other
    scale: float  # points are multiplied by it, distances divided
    keeps: int = 0  # 1: the forward pass records what its gradient needs

    @property
    def features(self) -> int:
        """Channels of the feature: all outputs but the distance."""
        return self.widths[-1] - 1

    def skips_into(self, layer: int) -> bool:
        """Whether the encoded point joins the input of a layer."""
        return bool(self.skips >> layer & 1)

    @property
    def recorded(self) -> int:
        """Numbers kept per point between forward and backward: the outputs of the hidden layers."""
        return sum(self.widths[1:-2:2])


@dataclass(frozen=True)
class ColorSizes:
    """A colour network. A point's input is `fixed` (constants), then its normal if there is one, then its feature."""

    layers: int
    squeeze: int  # 1: a sigmoid ends it
    fixed: int  # channels of position and encoded view
    normals: int  # 1 or 0
    features: int
    widths: tuple[int, ...]
    keeps: int = 0  # 1: the forward pass records what its gradient needs

    @property
    def recorded(self) -> int:
        """Numbers kept per point between forward and backward: the outputs of the hidden layers, as rows in memory."""
        return sum(row_stride(width) for width in self.widths[1:-2:2])


@dataclass(frozen=True)
class NerfSizes:
    """A NeRF: a trunk, then feature and density, view, colour."""

    trunk: int  # layers
    coordinates: int  # of a point
    octaves: int
    view_octaves: int
    skips: tuple[int, ...]  # hidden layers after which the encoded point joins again
    widths: tuple[int, ...]
