"""The block `model` of a conf with model.type = neus. Knows no Jittor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.config.strict import ConfigError
from models.estimators.conf import HierarchicalConfig
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig
from models.methods.chosen_fields import SurfaceConfig

NEUS = "neus"


@dataclass(frozen=True, kw_only=True)
class NeuSConfig(SurfaceConfig):
    """The networks and the renderer of a surface."""

    nerf: NerfConfig
    sdf_network: SdfConfig | None = None  # None where `surface` names another one
    rendering_network: ColorConfig | None = None  # likewise `color`
    neus_renderer: HierarchicalConfig
    type: str = NEUS

    def check(self) -> None:
        """Raises ConfigError for what cannot work together."""
        self.check_fields()
        if fault := self.neus_renderer.fault(self.neus_renderer.n_importance):
            raise ConfigError(fault)
        if self.neus_renderer.n_outside > 0:  # points are (x, y, z, 1) / r
            self.nerf.check(4, "where neus_renderer.n_outside > 0")

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that weights depend on."""
        return ("nerf", self.surface, self.color)

    @property
    def n_importance(self) -> int:
        """Samples placed where the surface is likely."""
        return self.neus_renderer.n_importance

    def allows_importance(self, count: int) -> bool:
        """Whether n_importance could be `count`."""
        return not self.neus_renderer.fault(count)

    def with_importance(self, count: int) -> NeuSConfig:
        """The same with `count` as n_importance."""
        return replace(self, neus_renderer=replace(self.neus_renderer, n_importance=count))

    @property
    def parameters(self) -> int:
        """Trained numbers of all networks that the conf builds."""
        return self.field_parameters + (self.nerf.parameters if self.neus_renderer.n_outside > 0 else 0)

    @property
    def memory_keys(self) -> str:
        """The samples of a ray."""
        return "model.neus_renderer.n_samples and n_importance"

    @property
    def ray_numbers(self) -> int:
        """float32 numbers that a step keeps of each ray at the least, see structs.RenderOutput."""
        return 9 * (self.neus_renderer.n_samples + self.n_importance) + self.neus_renderer.n_outside
