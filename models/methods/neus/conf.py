"""The block `model` for model.type = neus. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.strict import ConfigError
from models.estimators.conf import HierarchicalConfig
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig
from models.methods.block import SurfaceConfig

NEUS = "neus"


@dataclass(frozen=True, kw_only=True)
class NeuSConfig(SurfaceConfig):
    """The networks and the samples of a surface."""

    nerf: NerfConfig
    sdf_network: SdfConfig | None = None  # None if `surface` selects another block
    rendering_network: ColorConfig | None = None  # the same for `color`
    neus_renderer: HierarchicalConfig
    type: str = NEUS
    sampled = "neus_renderer"
    memory_keys = "model.neus_renderer.n_samples and n_importance"

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        self.check_fields()
        if fault := self.neus_renderer.fault(self.neus_renderer.n_importance):
            raise ConfigError(fault)
        if self.neus_renderer.n_outside > 0:  # points are (x, y, z, 1) / r
            self.nerf.check(4, "where neus_renderer.n_outside > 0")

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the shapes of the weights."""
        return ("nerf", *self.field_blocks)

    @property
    def parameters(self) -> int:
        """Trained parameters of all networks that the conf builds."""
        return self.field_parameters + (self.nerf.parameters if self.neus_renderer.n_outside > 0 else 0)

    @property
    def ray_numbers(self) -> int:
        """A lower bound of the float32 numbers that a step stores per ray, see structs.RenderOutput."""
        renderer = self.neus_renderer
        return 9 * (renderer.n_samples + renderer.n_importance) + renderer.n_outside
