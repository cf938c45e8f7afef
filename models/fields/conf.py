"""The conf blocks of fields, and the sizes that follow from them. Does not import Jittor.

The keys are those of the published confs (https://github.com/Totoro97/NeuS/tree/6e0a230/confs) and of the constructors
that read them (models/fields.py there); confs/base/*.conf explains each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from models.config.blocks import LARGEST_LEVELS
from models.config.strict import AUTO, Auto, ConfigError, excerpt, limits
from models.ops.sizes import FEATURES, GridSizes, encoding_width, grid_sizes

# The names of the blocks below `model`.
SDF_NETWORK, SDF_GRID = "sdf_network", "sdf_grid"
RENDERING_NETWORK, COLOR_GRID = "rendering_network", "color_grid"
NERF, DENSITY_GRID = "nerf", "density_grid"
MAX_FREQUENCIES = 24  # float32 has 24 significant bits: further octaves of an encoding are noise
MAX_LAYERS = 30  # of a network: the native network stores its skips as the bits of a 32-bit integer
MAX_LOG2_ROWS = 24  # per level: 2^24 rows of a float32 pair are 128 MiB, and seven times that in training
FINEST_CELLS = 2**16  # per side of a level: float32 then places a point to a 256th of a cell
LARGEST_INIT_VAL = 1.38  # inv_s = exp(10 * value) is clamped at 1e-6 and 1e6, and has no gradient there
MAX_WIDTH = 2**13  # of a layer: 256 MiB of weights between two such layers, and seven times that in training
LEAST_BIAS, LARGEST_BIAS = 1e-3, 100.0  # radius of an initial sphere; the largest contains any region
# Initial densities per unit-sphere radius: a smaller one is invisible, a larger one opaque at the first sample, and
# neither has a gradient.
LEAST_DENSITY, LARGEST_DENSITY = 1e-3, 1e3
NO_NORMAL = "no_normal"
VIEW, NORMALS = "view_dirs", "normals"
# Inputs of each mode besides the feature, in this order (IDR, arXiv 2003.09852, section 3.2 and its ablations).
MODE_INPUTS = {
    "idr": ("points", VIEW, NORMALS),
    "no_view_dir": ("points", NORMALS),
    NO_NORMAL: ("points", VIEW),
}
VIEW_WIDTH = 3  # of a direction
# Keys that affect only the initial weights: other values are compatible with trained weights.
INITIALISATION_KEYS = frozenset({"bias", "density", "geometric_init", "inside_outside"})

Widths = list[tuple[int, int]]  # (inputs, outputs) of each layer


@dataclass(frozen=True)
class NerfConfig:
    """The background network (inverted-sphere NeRF); with model.type = nerf, the coarse and the fine network."""

    D: int = limits(8, at_least=1, at_most=MAX_LAYERS)
    W: int = limits(256, at_least=2, at_most=MAX_WIDTH)
    d_in: int = limits(3, at_least=3, at_most=4)
    d_in_view: int = limits(3, at_least=3, at_most=3)
    multires: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    multires_view: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    output_ch: int = limits(4, at_least=1, at_most=MAX_WIDTH)
    skips: tuple[int, ...] = (4,)
    use_viewdirs: bool = False

    def check(self, d_in: int, where: str) -> None:
        """Raises ConfigError unless it is a network of view directions and `d_in` inputs; `where`: the condition."""
        if self.d_in != d_in:
            raise ConfigError(f"model.nerf.d_in = {self.d_in}: must be {d_in} {where}")
        if not self.use_viewdirs:
            raise ConfigError(f"model.nerf.use_viewdirs = false: must be true {where}")
        if any(layer < 0 or layer == self.D - 1 for layer in self.skips):
            words = f"must not be negative nor the last layer, {self.D - 1}"
            raise ConfigError(f"model.nerf.skips = {excerpt(self.skips)}: {words}")

    def fits(self, model: Any) -> tuple[int, tuple[str, ...]]:
        """See `ColorConfig.fits`; as the radiance field of a model."""
        self.check(3, f"where model.type = {model.type}")
        return self.parameters, (NERF,)

    @property
    def trunk(self) -> Widths:
        """The layers of the trunk; the encoded point is appended after each skip."""
        point = encoding_width(self.d_in, self.multires)
        after = [self.W + point if index in self.skips else self.W for index in range(self.D - 1)]
        return [(inputs, self.W) for inputs in [point, *after]]

    @property
    def heads(self) -> Widths:
        """The layers for feature and density, view, colour."""
        view = encoding_width(self.d_in_view, self.multires_view)
        return [(self.W, self.W + 1), (view + self.W, self.W // 2), (self.W // 2, 3)]

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        return parameter_count([*self.trunk, *self.heads], has_norms=False)


@dataclass(frozen=True)
class SdfConfig:
    """The signed distance network."""

    d_in: int = limits(at_least=3, at_most=3)
    d_out: int = limits(at_least=2, at_most=MAX_WIDTH + 1)
    d_hidden: int = limits(at_least=1, at_most=MAX_WIDTH)
    n_layers: int = limits(at_least=1, at_most=MAX_LAYERS)
    skip_in: tuple[int, ...] = (4,)
    multires: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    bias: float = limits(0.5, at_least=LEAST_BIAS, at_most=LARGEST_BIAS)
    scale: float = limits(1.0, at_least=1e-3, at_most=1e3)
    geometric_init: bool = True
    weight_norm: bool = True
    inside_outside: bool = False

    def check(self) -> None:
        """Raises ConfigError unless each skip is at a hidden layer and the previous layer keeps at least one output."""
        key = "model.sdf_network.skip_in"
        if any(not 1 <= layer <= self.n_layers for layer in self.skip_in):
            raise ConfigError(f"{key} = {excerpt(self.skip_in)}: its layers must lie in 1..n_layers = {self.n_layers}")
        if self.skip_in and self.d_hidden <= self.embedded_width:
            raise ConfigError(
                f"model.sdf_network.d_hidden = {self.d_hidden}: with skip_in it must be above the "
                f"{self.embedded_width} values of the encoded input; raise it, lower multires = {self.multires}, or "
                "set skip_in = []"
            )

    @property
    def features(self) -> int:
        """Feature channels for the colour network."""
        return self.d_out - 1

    @property
    def embedded_width(self) -> int:
        """Width of the encoded input: the point and, per octave, its sines and cosines."""
        return encoding_width(self.d_in, self.multires)

    @property
    def widths(self) -> Widths:
        """Inputs and outputs of each layer; one before a skip has fewer outputs by the width of the encoded point."""
        encoded = self.embedded_width
        sizes = [encoded] + [self.d_hidden] * self.n_layers + [self.d_out]
        pairs = enumerate(pairwise(sizes), 1)
        return [(inputs, outputs - encoded * (index in self.skip_in)) for index, (inputs, outputs) in pairs]

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        return parameter_count(self.widths, self.weight_norm)


@dataclass(frozen=True)
class ColorConfig:
    """Sizes and inputs of the colour network."""

    d_feature: int = limits(at_least=1, at_most=MAX_WIDTH)
    mode: str = limits(one_of=tuple(MODE_INPUTS))
    d_in: int = limits(at_least=6, at_most=9)
    d_out: int = limits(at_least=3, at_most=3)
    d_hidden: int = limits(at_least=1, at_most=MAX_WIDTH)
    n_layers: int = limits(at_least=1, at_most=MAX_LAYERS)
    weight_norm: bool = True
    multires_view: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    squeeze_out: bool = True

    def check(self, features: int, source: str) -> None:
        """Raises ConfigError if the network does not fit `features` channels; `source` is the key that sets them."""
        block = "model.rendering_network"
        if self.d_feature != features:
            raise ConfigError(f"{block}.d_feature = {self.d_feature}: must be {source} = {features}")
        if self.d_in != input_width(self.mode):
            raise ConfigError(f"{block}.d_in = {self.d_in}: must be {input_width(self.mode)} for mode = {self.mode}")

    def fits(self, model: Any, features: int, source: str) -> tuple[int, tuple[str, ...]]:
        """The number of trained parameters, and the blocks that determine them; raises ConfigError if it does not fit
        a surface with this number of features, which the key `source` sets.
        """
        self.check(features, source)
        return self.parameters, (RENDERING_NETWORK,)

    @property
    def widths(self) -> Widths:
        """Inputs and outputs of each layer; the encoded view direction is an input if the mode uses it."""
        first = self.d_in + self.d_feature
        if VIEW in MODE_INPUTS[self.mode]:
            first += encoding_width(VIEW_WIDTH, self.multires_view) - VIEW_WIDTH
        sizes = [first] + [self.d_hidden] * self.n_layers + [self.d_out]
        return list(pairwise(sizes))

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        return parameter_count(self.widths, self.weight_norm)


@dataclass(frozen=True)
class VarianceConfig:
    """The parameter of inv_s = exp(10 * value)."""

    init_val: float = limits(at_least=-LARGEST_INIT_VAL, at_most=LARGEST_INIT_VAL)


@dataclass(frozen=True)
class TableConfig:
    """A feature grid (Instant-NGP, arXiv 2201.05989, table 1)."""

    levels: int = limits(12, at_least=1, at_most=LARGEST_LEVELS)
    coarsest: int = limits(16, at_least=1, at_most=FINEST_CELLS)
    finest: int = limits(512, at_least=1, at_most=FINEST_CELLS)
    log2_rows: int = limits(17, at_least=4, at_most=MAX_LOG2_ROWS)

    block: ClassVar[str]  # its name below model, for messages

    def check(self) -> None:
        """Raises ConfigError unless levels become finer."""
        if self.finest < self.coarsest:
            words = f"must not be below coarsest = {self.coarsest}"
            raise ConfigError(f"model.{self.block}.finest = {self.finest}: {words}")

    @property
    def sizes(self) -> GridSizes:
        """The layout of the grid with all levels, without the network."""
        return grid_sizes(self.levels, self.coarsest, self.finest, self.log2_rows)

    @property
    def table_parameters(self) -> int:
        """The number of trained features."""
        return self.sizes.rows * FEATURES


@dataclass(frozen=True)
class GridConfig(TableConfig):
    """A field on a feature grid with a network."""

    d_hidden: int = limits(64, at_least=1, at_most=MAX_WIDTH)
    n_layers: int = limits(1, at_least=1, at_most=4)
    d_feature: int = limits(15, at_least=1, at_most=MAX_WIDTH)

    @property
    def features(self) -> int:
        """Feature channels for the colour network."""
        return self.d_feature

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        return self.table_parameters + parameter_count(self.widths, has_norms=False)

    @property
    def widths(self) -> Widths:
        """Input and output width of each layer with all levels; the first output is the distance or density."""
        ends = [self.sizes.inputs, *[self.d_hidden] * self.n_layers, 1 + self.d_feature]
        return list(pairwise(ends))


@dataclass(frozen=True)
class SdfGridConfig(GridConfig):
    """A signed distance, initialised as that of a sphere of radius `bias`."""

    bias: float | Auto = limits(AUTO, at_least=LEAST_BIAS, at_most=LARGEST_BIAS)
    smooth: int | Auto = limits(AUTO, at_least=0, at_most=LARGEST_LEVELS)

    block: ClassVar[str] = SDF_GRID

    @property
    def sizes(self) -> GridSizes:
        """See `TableConfig`; `auto` is that of a training without a plan."""
        return replace(super().sizes, smooth=0 if self.smooth == AUTO else self.smooth)

    @property
    def radius(self) -> float:
        """The radius of the initial sphere; that of the published code by default."""
        return 0.5 if self.bias == AUTO else self.bias


@dataclass(frozen=True)
class DensityGridConfig(GridConfig):
    """A density, initialised as the constant `density`."""

    density: float = limits(4.0, at_least=LEAST_DENSITY, at_most=LARGEST_DENSITY)

    block: ClassVar[str] = DENSITY_GRID

    def fits(self, model: Any) -> tuple[int, tuple[str, ...]]:
        """See `ColorConfig.fits`; as the radiance field of a model."""
        self.check()
        color = model.block(RENDERING_NETWORK)
        color.check(self.features, "model.density_grid.d_feature")
        if color.mode != NO_NORMAL:
            raise ConfigError(
                f"model.rendering_network.mode = {color.mode}: a radiance field has no normals; must be {NO_NORMAL} "
                f"where model.type = {model.type}"
            )
        return self.parameters + color.parameters, (DENSITY_GRID, RENDERING_NETWORK)


@dataclass(frozen=True)
class ColorGridConfig(TableConfig):
    """A feature grid for the colour network, in addition to the features of the surface."""

    block: ClassVar[str] = COLOR_GRID

    def fits(self, model: Any, features: int, source: str) -> tuple[int, tuple[str, ...]]:
        """See `ColorConfig.fits`."""
        self.check()
        color = model.block(RENDERING_NETWORK)
        color.check(features, source)
        return self.table_parameters + self.network(color).parameters, (COLOR_GRID, RENDERING_NETWORK)

    def network(self, color: ColorConfig) -> ColorConfig:
        """The network of the block `rendering_network` with the features of all levels as further inputs."""
        return replace(color, d_feature=color.d_feature + self.levels * FEATURES)


def input_width(mode: str) -> int:
    """The number of inputs of a colour network besides the feature."""
    return 3 * len(MODE_INPUTS[mode])


def parameter_count(widths: Widths, has_norms: bool) -> int:
    """Weights and biases of layers, and a length per row with weight normalisation."""
    return sum(inputs * outputs + outputs * (2 if has_norms else 1) for inputs, outputs in widths)
