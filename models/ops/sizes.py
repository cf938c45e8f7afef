"""The layouts of networks and grids, for conf, reference and native source. Does not import Jittor.

Positional encoding (NeRF, arXiv 2003.08934, eq. 4, with the input first and without the factor pi): gamma(x) = (x, sin
x, cos x, sin 2x, cos 2x, ..., sin 2^(L-1) x, cos 2^(L-1) x), each block of the width of x. The order is that of the
published NeuS: https://github.com/Totoro97/NeuS/blob/6e0a230/models/embedder.py

The grid is that of Instant-NGP (arXiv 2201.05989, section 3): levels of cells over the cube [-1, 1]^3, with two numbers
at each corner. If the corners of a level fit into 2^T rows, each has a separate row; otherwise corners share rows by a
hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.machine.device import choice

# Points per block of the native operations: the inputs and outputs of a layer of 256 channels fit the second-level
# cache.
BLOCK = 64
PAD = 16  # widths are padded to multiples of it, the vector length of the widest processors
VECTOR = 4  # floats of 16 bytes, the alignment of rows in memory on CUDA
# The largest networks that CUDA evaluates in tiles of points (csrc/cuda/tile_layers.h): channels of a layer, of the
# encoded point, and layers.
TILE_WIDTH, TILE_ENCODED, TILE_LAYERS = 512, 128, 16
AMPERE = 80  # capability
SOFTPLUS_BETA = 100.0  # sharpness of the activation: close to ReLU, but twice differentiable (IDR)
# Distance of the farthest background samples from the origin; points beyond are within 1/128 of the side of their cube
BACKGROUND_RADIUS = 64.0
SKIP_SCALE = 1.0 / math.sqrt(2.0)  # preserves the variance of a layer's input where the encoded point is appended
FEATURES = 2  # numbers per corner: one 64-bit load, and the best choice of the paper
POINT = 3  # coordinates, which precede the features in the network's input


def encoding_width(width: int, frequencies: int) -> int:
    """Channels of the encoding of `width` channels; `frequencies` = 0 encodes nothing."""
    return width * (1 + 2 * frequencies)


def fits_tiles(layers: int, width: int, beside: int) -> bool:
    """Whether CUDA evaluates a network in tiles: by its layers, their channels, and those of encoded inputs."""
    home = choice.home
    has_half = home is not None and home.plan.gpu.capability < AMPERE  # of the shared memory
    return layers <= TILE_LAYERS and width <= TILE_WIDTH // (1 + has_half) and beside <= TILE_ENCODED


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
    keeps: int = 0  # 1: the forward pass stores what its gradient needs, on a CPU

    @property
    def recorded(self) -> int:
        """Floats stored per point between forward and backward pass: the padded outputs of the hidden layers."""
        return sum(row_stride(width) for width in self.widths[1:-2:2])

    @property
    def fits_tiles(self) -> bool:
        """Whether CUDA evaluates it in tiles."""
        return fits_tiles(self.layers, max(self.features, *self.widths[1::2]), self.widths[0] - self.features)


@dataclass(frozen=True)
class NerfSizes:
    """A NeRF network: a trunk, then feature and density, view, colour."""

    trunk: int  # layers
    coordinates: int  # of a point
    octaves: int
    view_octaves: int
    skips: tuple[int, ...]  # hidden layers after which the encoded point is appended
    widths: tuple[int, ...]

    @property
    def fits_tiles(self) -> bool:
        """Whether CUDA evaluates it in tiles; feature and density are layers of their own."""
        outputs = [width - (index == self.trunk) for index, width in enumerate(self.widths[1::2])]
        beside = max(self.widths[0], 3 * (1 + 2 * self.view_octaves))
        return fits_tiles(len(outputs) + 1, max(outputs), beside)


@dataclass(frozen=True)
class GridSizes:
    """A grid of L levels, and a network of (point, features of the active levels).

    A point outside the cube has the features of the nearest point in it, and no derivative along the clamped axes.
    """

    resolutions: tuple[int, ...]  # cells along an edge of the cube, per level
    entries: tuple[int, ...]  # table rows per level; levels are consecutive
    active: int  # number of active levels; the features of the others are zero and are not computed
    widths: tuple[int, ...] = ()  # inputs and outputs of each linear layer; () without a network
    keeps: int = 0  # 1: the forward pass stores what its gradient needs
    smooth: int = 0  # levels, from the first, interpolated without jumps of the slopes between cells

    @property
    def levels(self) -> int:
        """The number of levels L."""
        return len(self.resolutions)

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return sum(self.entries)

    @property
    def inputs(self) -> int:
        """Input channels of the network."""
        return POINT + FEATURES * self.active

    @property
    def recorded(self) -> int:
        """Numbers stored per point between forward and backward pass.

        The outputs of the hidden layers, in whole vectors; per active level the features, their derivatives along three
        axes, and the derivative of the distance with respect to them.
        """
        return sum(map(padded, self.widths[1:-2:2])) + self.active * FEATURES * (1 + POINT + 1)

    def is_dense(self, level: int) -> bool:
        """Whether each corner of a level has its own row."""
        return self.entries[level] == (self.resolutions[level] + 1) ** 3

    def start(self, level: int) -> int:
        """The first row of a level."""
        return sum(self.entries[:level])


def grid_sizes(levels: int, coarsest: int, finest: int, log2_rows: int, active: int | None = None) -> GridSizes:
    """A grid with geometrically increasing resolutions from `coarsest` to `finest`, at most 2^log2_rows rows per
    level.
    """
    growth = (finest / coarsest) ** (1.0 / max(1, levels - 1))
    resolutions = tuple(math.floor(coarsest * growth**level + 0.5) for level in range(levels))
    entries = tuple(min((resolution + 1) ** 3, 2**log2_rows) for resolution in resolutions)
    return GridSizes(resolutions, entries, levels if active is None else active)
