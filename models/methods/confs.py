"""The blocks `model` of the volume rendering methods. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from models.config.blocks import PatchesConfig, PhotographsConfig
from models.config.strict import AUTO, ConfigError, limits
from models.estimators.conf import (
    CoarseToFineConfig,
    EstimatorConfig,
    HierarchicalConfig,
    InsideConfig,
    OpenConfig,
    PackedConfig,
    RadianceConfig,
)
from models.fields.conf import (
    NO_NORMAL,
    ColorConfig,
    ColorGridConfig,
    DensityGridConfig,
    NerfConfig,
    SdfConfig,
    SdfGridConfig,
    input_width,
)
from models.fields.registry import DENSITY_GRID, NERF, RENDERING_NETWORK, SDF_GRID, Component
from models.methods.block import DEFAULT, RadianceFieldConfig, SurfaceConfig
from models.plan import CONTRACTED, INTERIOR, OBJECT, PLAIN

NEUS, FAST_NEUS, FAST_NERF = "neus", "fast_neus", "fast_nerf"  # values of model.type; NERF is another
NEUS_RENDERER = "neus_renderer"


def _hierarchical(conf: NeuSConfig, generator: Any) -> Any:
    """The published estimator, with a background network if the conf uses one."""
    has_background = conf.neus_renderer.n_outside > 0
    nerf = import_module("models.fields.radiance").NeRF(conf.nerf, generator) if has_background else None
    return import_module("models.estimators.hierarchical").HierarchicalEstimator(conf.neus_renderer, nerf)


# The estimators by the names of their blocks; `build(conf, generator)` takes the block `model`.
ESTIMATORS = {NEUS_RENDERER: Component(HierarchicalConfig, _hierarchical)}


@dataclass(frozen=True, kw_only=True)
class NeuSConfig(SurfaceConfig):
    """The networks and the samples of a surface."""

    nerf: NerfConfig
    sdf_network: SdfConfig | None = None  # None if `surface` selects another block
    rendering_network: ColorConfig | None = None  # the same for `color`
    neus_renderer: HierarchicalConfig
    type: str = NEUS
    defaults = {**SurfaceConfig.defaults, "estimator": NEUS_RENDERER}
    choices = {**SurfaceConfig.choices, "estimator": ESTIMATORS}
    estimator: str = DEFAULT  # block of the estimator, a key of ESTIMATORS

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        self.check_fields()
        self.sampling.check(self)

    @property
    def sampling(self) -> EstimatorConfig:
        """The block of the selected estimator."""
        return self.block(self.estimator)

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the shapes of the weights."""
        return (*self.sampling.network_blocks, *self.field_blocks)

    @property
    def parameters(self) -> int:
        """Trained parameters of all networks that the conf builds."""
        return self.field_parameters + self.sampling.parameters(self)

    @property
    def ray_numbers(self) -> int:
        """See `EstimatorConfig`."""
        return self.sampling.ray_numbers

    @property
    def sizes(self) -> tuple[str, ...]:
        """The keys of the estimator's block."""
        return tuple(f"{self.estimator}.{key}" for key in self.sampling.sizes)


@dataclass(frozen=True, kw_only=True)
class NeRFConfig(RadianceFieldConfig):
    """A coarse and a fine field of equal shape, and their samples."""

    defaults = {"radiance_field": NERF}
    nerf: NerfConfig | None = None  # None if `radiance_field` selects another block
    nerf_renderer: CoarseToFineConfig = CoarseToFineConfig()
    type: str = NERF
    sizes = ("nerf_renderer.n_samples", "nerf_renderer.n_importance")

    def check(self) -> None:
        """Raises ConfigError for networks whose inputs are not points (x, y, z) and view directions, and for
        invalid near or far.
        """
        self.check_fields()
        renderer = self.nerf_renderer
        if renderer.far <= renderer.near and (renderer.near, renderer.far) != (0.0, 0.0):
            raise ConfigError(
                f"model.nerf_renderer.far = {renderer.far:g}: must be above near = {renderer.near:g}; or set both to 0 "
                "for the span of the unit sphere"
            )

    @property
    def parameters(self) -> int:
        """Trained parameters; those of NeRF's network twice, for the coarse and the fine pass."""
        return super().parameters * (2 if self.radiance_field == NERF else 1)

    @property
    def ray_numbers(self) -> int:
        """A lower bound of the float32 numbers that a step stores per ray: depths, weights and jitter."""
        samples = self.nerf_renderer.n_samples
        return 2 * (samples + self.nerf_renderer.n_importance) + samples


class OccupancySampled:
    """Properties common to methods that sample occupied cells."""

    sees_from_within = True  # rays start at the camera
    needs_masks = False  # masks are used if there are any


@dataclass(frozen=True)
class PlanConfig:
    """Decisions that no other key forces."""

    background: str = limits(AUTO, one_of=(AUTO, CONTRACTED, PLAIN))
    region: str = limits(AUTO, one_of=(AUTO, OBJECT, INTERIOR))


@dataclass(frozen=True, kw_only=True)
class FastNeuSConfig(OccupancySampled, SurfaceConfig):
    """The fields and the samples of a surface."""

    defaults = {"surface": SDF_GRID, "color": RENDERING_NETWORK}
    rendering_network: ColorConfig
    sdf_grid: SdfGridConfig = SdfGridConfig()
    color_grid: ColorGridConfig = ColorGridConfig()
    packed: PackedConfig = PackedConfig()
    patches: PatchesConfig = PatchesConfig()
    photographs: PhotographsConfig = PhotographsConfig()
    density_grid: DensityGridConfig = DensityGridConfig()
    inside: InsideConfig = InsideConfig()
    open: OpenConfig = OpenConfig()
    plan: PlanConfig = PlanConfig()
    type: str = FAST_NEUS
    sizes = ("packed.samples", "packed.first_step", "packed.last_step", "open.samples")

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        self.check_fields()
        self.density_grid.check()
        self.packed.check()
        self.open.check()
        self.patches.check()

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the shapes of the weights."""
        return (*self.field_blocks, DENSITY_GRID)

    @property
    def parameters(self) -> int:
        """Trained parameters, including the background."""
        return self.field_parameters + self.density_grid.parameters + self.background_color.parameters

    @property
    def background_color(self) -> ColorConfig:
        """The colour network of the background: that of the surface, without normals."""
        color, features = self.rendering_network, self.density_grid.features
        return replace(color, mode=NO_NORMAL, d_in=input_width(NO_NORMAL), d_feature=features)


@dataclass(frozen=True, kw_only=True)
class FastNeRFConfig(OccupancySampled, RadianceFieldConfig):
    """The field and the samples of a radiance field."""

    defaults = {"radiance_field": DENSITY_GRID}
    density_grid: DensityGridConfig = DensityGridConfig()
    radiance: RadianceConfig = RadianceConfig()
    photographs: PhotographsConfig = PhotographsConfig()
    type: str = FAST_NERF
    sizes = ("radiance.samples", "radiance.first_step", "radiance.last_step")

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        self.check_fields()
        self.radiance.check()
