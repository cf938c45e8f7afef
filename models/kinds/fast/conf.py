"""The blocks `model` of confs with model.type = fast_neus and fast_nerf. Knows no Jittor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from data.cameras import SPAN_LENGTH
from models.config.strict import ConfigError, limits
from models.fields.conf import INPUT_WIDTHS, ColorConfig, DensityGridConfig, SdfGridConfig, VarianceConfig
from models.kinds.block import PlainBlock
from models.kinds.photographs_conf import PhotographsConfig

FAST_NEUS, FAST_NERF = "fast_neus", "fast_nerf"
ANCHOR_SHARE = 1 / 16  # of the samples that are points of structure from motion: as many as a batch has rays, or more
NO_NORMAL = "no_normal"  # the mode of a colour that reads no normals


@dataclass(frozen=True)
class SamplesConfig:
    """Which samples a step takes, and when the schedules change; times are shares of train.end_iter."""

    samples: int = limits(8192, at_least=64)
    anywhere: float = limits(0.1, at_least=0, at_most=0.9)
    cells: int = limits(128, at_least=8, at_most=512)
    hull_margin: float = limits(0.07, at_least=0)
    first_step: float = limits(0.035, above=0)
    last_step: float = limits(0.007, above=0)
    steps_until: float = limits(0.5, above=0, at_most=1)
    first_levels: int = limits(4, at_least=1)
    levels_until: float = limits(0.4, above=0, at_most=1)
    prune_from: float = limits(0.2, at_least=0, at_most=1)
    prune_every: int = limits(64, at_least=1)
    warm_up: int = limits(100, at_least=0)
    network_rate: float = limits(0.5, above=0)

    def check(self, block: str) -> None:
        """Raises ConfigError, naming the block below model, for steps that grow, and where a ray may not fit a step."""
        if self.last_step > self.first_step:
            raise ConfigError(
                f"model.{block}.last_step = {self.last_step:g}: must not be above first_step = {self.first_step:g}"
            )
        most = math.ceil(SPAN_LENGTH / self.last_step) + 1
        if self.samples - int(max(self.anywhere, ANCHOR_SHARE) * self.samples) < most:
            raise ConfigError(
                f"model.{block}.samples = {self.samples}: a single ray may have {most} samples last_step = "
                f"{self.last_step:g} apart, beside the share {self.anywhere:g} that lies anywhere; raise samples or "
                "last_step"
            )


@dataclass(frozen=True)
class PackedConfig(SamplesConfig):
    """Those of a surface, and the losses that hang on them."""

    shell: float = limits(5.0, above=0)
    free_weight: float = limits(1.0, at_least=0)
    points_weight: float = limits(0.0, at_least=0)
    points_until: float = limits(1.0, at_least=0, at_most=1)
    curvature_weight: float = limits(0.0, at_least=0)
    sharpness_rate: float = limits(0.4, above=0)


@dataclass(frozen=True)
class BackgroundConfig:
    """The samples beyond the unit sphere."""

    samples: int = limits(8192, at_least=64)
    section: float = limits(0.12, above=0, at_most=1)
    cells: int = limits(64, at_least=8, at_most=512)
    threshold: float = limits(0.01, above=0, at_most=0.5)
    prune_from: float = limits(0.4, at_least=0, at_most=1)
    shell: float = limits(10.0, above=0)
    patches_weight: float = limits(0.0, at_least=0)


@dataclass(frozen=True)
class PatchesConfig:
    """The comparison of patches across photographs; times are shares of train.end_iter."""

    weight: float = limits(0.0, at_least=0)
    begins: float = limits(0.2, at_least=0, at_most=1)
    radius: int = limits(3, at_least=1, at_most=10)
    neighbours: int = limits(8, at_least=1, at_most=32)
    best: int = limits(4, at_least=1)

    def check(self) -> None:
        """Raises ConfigError where more of the neighbours are to agree than there are."""
        if self.best > self.neighbours:
            raise ConfigError(f"model.patches.best = {self.best}: must not be above neighbours = {self.neighbours}")


@dataclass(frozen=True)
class FastNeuSConfig(PlainBlock):
    """The fields and the samples of a surface."""

    rendering_network: ColorConfig
    variance_network: VarianceConfig
    sdf_grid: SdfGridConfig = SdfGridConfig()
    packed: PackedConfig = PackedConfig()
    patches: PatchesConfig = PatchesConfig()
    photographs: PhotographsConfig = PhotographsConfig()
    density_grid: DensityGridConfig = DensityGridConfig()
    background: BackgroundConfig = BackgroundConfig()
    type: str = FAST_NEUS

    def check(self) -> None:
        """Raises ConfigError for what cannot work together."""
        self.sdf_grid.check()
        self.density_grid.check()
        self.packed.check("packed")
        self.patches.check()
        self.rendering_network.check(self.sdf_grid.features, "model.sdf_grid.d_feature")

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that weights depend on."""
        return ("sdf_grid", "rendering_network", "density_grid")

    @property
    def parameters(self) -> int:
        """Trained numbers, with a background; the sharpness is one."""
        surface = 1 + self.sdf_grid.parameters + self.rendering_network.parameters
        return surface + self.density_grid.parameters + self.background_color.parameters

    @property
    def trains_on_points(self) -> bool:
        """Where they have a weight."""
        return self.packed.points_weight > 0

    @property
    def sees_from_within(self) -> bool:
        """Yes: rays start at the camera."""
        return True

    @property
    def needs_masks(self) -> bool:
        """No: they are used where there are some."""
        return False

    @property
    def background_color(self) -> ColorConfig:
        """The colour network of what lies beyond the region: as that of the surface, without normals."""
        color, features = self.rendering_network, self.density_grid.features
        return replace(color, mode=NO_NORMAL, d_in=INPUT_WIDTHS[NO_NORMAL], d_feature=features)

    @property
    def buffer_bytes(self) -> int:
        """The cells and the hull, a byte each, and in the background cells and looks."""
        return 2 * self.packed.cells**3 + 2 * self.background.cells**3


@dataclass(frozen=True)
class RadianceConfig(SamplesConfig):
    """Those of a radiance field."""

    samples: int = limits(16384, at_least=64)
    anywhere: float = limits(0.0, at_least=0, at_most=0.9)
    hull_margin: float = limits(0.02, at_least=0)
    first_step: float = limits(0.02, above=0)
    last_step: float = limits(0.01, above=0)
    steps_until: float = limits(0.3, above=0, at_most=1)
    first_levels: int = limits(6, at_least=1)
    levels_until: float = limits(0.3, above=0, at_most=1)
    prune_from: float = limits(0.02, at_least=0, at_most=1)
    prune_every: int = limits(32, at_least=1)
    threshold: float = limits(0.05, above=0, at_most=0.5)
    network_rate: float = limits(1.0, above=0)


@dataclass(frozen=True)
class FastNeRFConfig(PlainBlock):
    """The fields and the samples of a radiance field."""

    rendering_network: ColorConfig
    density_grid: DensityGridConfig = DensityGridConfig()
    radiance: RadianceConfig = RadianceConfig()
    photographs: PhotographsConfig = PhotographsConfig()
    type: str = FAST_NERF

    def check(self) -> None:
        """Raises ConfigError for what cannot work together."""
        self.density_grid.check()
        self.radiance.check("radiance")
        self.rendering_network.check(self.density_grid.features, "model.density_grid.d_feature")
        if self.rendering_network.mode != NO_NORMAL:
            raise ConfigError(
                f"model.rendering_network.mode = {self.rendering_network.mode}: a radiance field has no normals; must "
                f"be {NO_NORMAL} where model.type = {FAST_NERF}"
            )

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that weights depend on."""
        return ("density_grid", "rendering_network")

    @property
    def parameters(self) -> int:
        """Trained numbers."""
        return self.density_grid.parameters + self.rendering_network.parameters

    @property
    def sees_from_within(self) -> bool:
        """Yes: rays start at the camera."""
        return True

    @property
    def needs_masks(self) -> bool:
        """No: they are used where there are some."""
        return False

    @property
    def buffer_bytes(self) -> int:
        """The cells, the hull and the looks that found a cell empty, a byte each."""
        return 3 * self.radiance.cells**3
