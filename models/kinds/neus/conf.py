"""The block `model` of a conf with model.type = neus. Knows no Jittor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from models.config.strict import ConfigError, limits, nearest
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig, VarianceConfig
from models.fields.registry import COLORS, RENDERING_NETWORK, SDF_NETWORK, SURFACES
from models.kinds.block import PlainBlock

NEUS = "neus"


@dataclass(frozen=True)
class RendererConfig:
    """How many samples a ray gets, and where."""

    n_samples: int = limits(at_least=1)
    n_importance: int = limits(at_least=0)
    n_outside: int = limits(at_least=0)
    up_sample_steps: int = limits(at_least=0)
    perturb: float = limits(at_least=0)

    def fault(self, count: int) -> str:
        """What stands in the way of `count` as n_importance: it takes sections to refine, and rounds to do it in."""
        if count > 0 and self.n_samples < 2:
            return "model.neus_renderer.n_samples = 1: must be at least 2 where n_importance > 0"
        if count > 0 and self.up_sample_steps < 1:
            return "model.neus_renderer.up_sample_steps = 0: must be at least 1 where n_importance > 0"
        return ""


@dataclass(frozen=True, kw_only=True)
class NeuSConfig(PlainBlock):
    """The networks and the renderer of a surface."""

    nerf: NerfConfig
    sdf_network: SdfConfig | None = None  # None where `surface` names another one
    variance_network: VarianceConfig
    rendering_network: ColorConfig | None = None  # likewise `color`
    neus_renderer: RendererConfig
    type: str = NEUS
    surface: str = SDF_NETWORK  # the block of the signed-distance field, one of fields.registry.SURFACES
    color: str = RENDERING_NETWORK  # the block of the colour field, one of fields.registry.COLORS
    more: Mapping[str, Any] = field(default_factory=dict)  # the blocks of fields other than the two published ones

    @staticmethod
    def further() -> dict[str, type]:
        """The blocks of `more`."""
        kinds = SURFACES | COLORS
        return {name: kind.block for name, kind in kinds.items() if name not in (SDF_NETWORK, RENDERING_NETWORK)}

    def block(self, name: str) -> Any:
        """The block of a field; raises ConfigError where the conf has none."""
        found = self.more.get(name) or getattr(self, name, None)
        if found is None:
            raise ConfigError(f"model.{name}: this block is missing and has no default; add it")
        return found

    def check(self) -> None:
        """Raises ConfigError for what cannot work together."""
        for key, known in (("surface", SURFACES), ("color", COLORS)):
            if getattr(self, key) not in known:
                name = getattr(self, key)
                raise ConfigError(f"model.{key} = {name}: there is no such field{nearest(name, known)}")
        surface, color = self.block(self.surface), self.block(self.color)
        surface.check()
        source = (
            "model.sdf_network.d_out - 1" if self.surface == SDF_NETWORK else f"the features of model.{self.surface}"
        )
        color.check(surface.features, source)
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
        """Trained numbers of all networks that the conf builds; the sharpness is one."""
        count = 1 + self.block(self.surface).parameters + self.block(self.color).parameters
        return count + (self.nerf.parameters if self.neus_renderer.n_outside > 0 else 0)

    @property
    def memory_keys(self) -> str:
        """The samples of a ray."""
        return "model.neus_renderer.n_samples and n_importance"

    @property
    def ray_numbers(self) -> int:
        """float32 numbers that a step keeps of each ray at the least, see kinds.neus.outputs.RenderOutput."""
        return 9 * (self.neus_renderer.n_samples + self.n_importance) + self.neus_renderer.n_outside
