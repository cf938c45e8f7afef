"""The block `model` for model.type = nerf. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.strict import ConfigError
from models.estimators.conf import CoarseToFineConfig
from models.fields.conf import NerfConfig
from models.fields.registry import NERF
from models.methods.block import RadianceFieldConfig


@dataclass(frozen=True, kw_only=True)
class NeRFConfig(RadianceFieldConfig):
    """A coarse and a fine field of equal shape, and their samples."""

    defaults = {"radiance_field": NERF}
    nerf: NerfConfig | None = None  # None if `radiance_field` selects another block
    nerf_renderer: CoarseToFineConfig = CoarseToFineConfig()
    type: str = NERF
    sampled = "nerf_renderer"
    memory_keys = "model.nerf_renderer.n_samples and n_importance"

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
