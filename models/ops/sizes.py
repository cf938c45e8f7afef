"""The layouts of the networks, for conf, reference and native source. Does not import Jittor.

Positional encoding (NeRF, arXiv 2003.08934, eq. 4, with the input first and without the factor pi): gamma(x) = (x, sin
x, cos x, sin 2x, cos 2x, ..., sin 2^(L-1) x, cos 2^(L-1) x), each block of the width of x. The order is that of the
published NeuS: https://github.com/Totoro97/NeuS/blob/6e0a230/models/embedder.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Points per block of the native operations: the inputs and outputs of a layer of 256 channels fit the second-level
# cache.
BLOCK = 64
PAD = 16  # widths are padded to multiples of it, the vector length of the widest processors
VECTOR = 4  # floats of 16 bytes, the alignment of rows in memory on CUDA
# The largest networks that CUDA evaluates in tiles of points (csrc/cuda/tile_layers.h): channels of a layer, of the
# encoded point, and layers.
TILE_WIDTH, TILE_ENCODED, TILE_LAYERS = 512, 128, 16
SOFTPLUS_BETA = 100.0  # sharpness of the activation: close to ReLU, but twice differentiable (IDR)
# Distance of the farthest background samples from the origin; points beyond are within 1/128 of the side of their cube
BACKGROUND_RADIUS = 64.0
SKIP_SCALE = 1.0 / math.sqrt(2.0)  # preserves the variance of a layer's input where the encoded point is appended


def encoding_width(width: int, frequencies: int) -> int:
    """Channels of the encoding of `width` channels; `frequencies` = 0 encodes nothing."""
    return width * (1 + 2 * frequencies)


def padded(width: int) -> int:
    """Padded channels of the native operations."""
    return -(-width // PAD) * PAD


def row_stride(width: int) -> int:
    """Distance of the rows of an activation in memory, in floats (`stride_of` of csrc/cpu/tile.h)."""
    return padded(width) + PAD


@dataclass(frozen=True)
class SdfSizes:
    """A signed-distance network."""

    layers: int
    encoded: int  # channels of the encoded point
    octaves: int
    skips: int  # bit l is set if the encoded point is appended to the input of layer l
    widths: tuple[int, ...]  # inputs and outputs of each layer
    scale: float  # points are multiplied by it, distances divided by it
    keeps: int = 0  # 1: the forward pass stores what its gradient needs

    @property
    def features(self) -> int:
        """Feature channels: all outputs but the distance."""
        return self.widths[-1] - 1

    def skips_into(self, layer: int) -> bool:
        """Whether the encoded point is appended to the input of a layer."""
        return bool(self.skips >> layer & 1)

    @property
    def recorded(self) -> int:
        """Floats stored per point between forward and backward pass: the outputs of the hidden layers.

        In whole vectors of 16 bytes, which the CPU's form does not need.
        """
        return sum(-(-width // VECTOR) * VECTOR for width in self.widths[1:-2:2])


@dataclass(frozen=True)
class ColorSizes:
    """A colour network. Its input is `fixed` (constants), the normal if `normals`, and the feature."""

    layers: int
    squeeze: int  # 1: the output has a sigmoid
    fixed: int  # channels of position and encoded view
    normals: int  # 1 or 0
    features: int
    widths: tuple[int, ...]
    keeps: int = 0  # 1: the forward pass stores what its gradient needs

    @property
    def recorded(self) -> int:
        """Floats stored per point between forward and backward pass: the padded outputs of the hidden layers."""
        return sum(row_stride(width) for width in self.widths[1:-2:2])


@dataclass(frozen=True)
class NerfSizes:
    """A NeRF network: a trunk, then feature and density, view, colour."""

    trunk: int  # layers
    coordinates: int  # of a point
    octaves: int
    view_octaves: int
    skips: tuple[int, ...]  # hidden layers after which the encoded point is appended
    widths: tuple[int, ...]
