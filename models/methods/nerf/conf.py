"""The block `model` of a conf with model.type = nerf. Knows no Jittor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.config.strict import ConfigError
from models.estimators.conf import CoarseToFineConfig
from models.fields.conf import NerfConfig
from models.fields.registry import NERF
from models.methods.chosen_fields import RadianceFieldConfig


@dataclass(frozen=True, kw_only=True)
class NeRFConfig(RadianceFieldConfig):
    """A coarse and a fine field of one shape, and where they are sampled."""

    defaults = {"radiance_field": NERF}
    nerf: NerfConfig | None = None  # None where `radiance_field` names another one
    nerf_renderer: CoarseToFineConfig = CoarseToFineConfig()
    type: str = NERF

    def check(self) -> None:
        """Raises ConfigError for networks that do not take points (x, y, z) and views, and for a wrong near or far."""
        self.check_fields()
        renderer = self.nerf_renderer
        if renderer.far <= renderer.near and (renderer.near, renderer.far) != (0.0, 0.0):
            raise ConfigError(
                f"model.nerf_renderer.far = {renderer.far:g}: must be above near = {renderer.near:g}; or set both to 0 "
                "for the span of the unit sphere"
            )

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that weights depend on."""
        return self.field_blocks

    @property
    def n_importance(self) -> int:
        """Samples placed where the coarse network sees something."""
        return self.nerf_renderer.n_importance

    def allows_importance(self, count: int) -> bool:
        """Whether n_importance could be `count`: the fine network is trained at the fine depths."""
        return count >= 1

    def with_importance(self, count: int) -> NeRFConfig:
        """The same with `count` as n_importance."""
        return replace(self, nerf_renderer=replace(self.nerf_renderer, n_importance=count))

    @property
    def parameters(self) -> int:
        """Trained numbers; those of NeRF's network twice, for its coarse and its fine pass."""
        return self.field_parameters * (2 if self.radiance_field == NERF else 1)

    @property
    def memory_keys(self) -> str:
        """The samples of a ray."""
        return "model.nerf_renderer.n_samples and n_importance"

    @property
    def ray_numbers(self) -> int:
        """float32 numbers that a step keeps of each ray at the least: depths and weights, and the jitter."""
        samples = self.nerf_renderer.n_samples
        return 2 * (samples + self.n_importance) + samples
