"""The blocks `model` for model.type = fast_neus and fast_nerf. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.config.strict import AUTO, limits
from models.estimators.conf import InsideConfig, OpenConfig, PackedConfig, RadianceConfig
from models.fields.conf import NO_NORMAL, ColorConfig, ColorGridConfig, DensityGridConfig, SdfGridConfig, input_width
from models.fields.registry import DENSITY_GRID, RENDERING_NETWORK, SDF_GRID
from models.methods.block import RadianceFieldConfig, SurfaceConfig
from models.plan import CONTRACTED, INTERIOR, OBJECT, PLAIN
from models.rendering.conf import PatchesConfig, PhotographsConfig

FAST_NEUS, FAST_NERF = "fast_neus", "fast_nerf"


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

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        self.check_fields()
        self.radiance.check()
