"""The block `model` of a conf with model.type = fast_neus. Knows no Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.strict import ConfigError, limits
from models.fields.conf import ColorConfig, SdfGridConfig, VarianceConfig
from models.kinds.block import PlainBlock

FAST_NEUS = "fast_neus"


@dataclass(frozen=True)
class PackedConfig:
    """Which samples a step takes, and when the schedules change; times are shares of train.end_iter."""

    samples: int = limits(8192, at_least=64)
    cells: int = limits(128, at_least=8, at_most=512)
    hull_margin: float = limits(0.07, at_least=0)
    first_step: float = limits(0.035, above=0)
    last_step: float = limits(0.007, above=0)
    steps_until: float = limits(0.5, above=0, at_most=1)
    first_levels: int = limits(4, at_least=1)
    levels_until: float = limits(0.4, above=0, at_most=1)
    prune_from: float = limits(0.2, at_least=0, at_most=1)
    prune_every: int = limits(64, at_least=1)
    shell: float = limits(8.0, above=0)
    warm_up: int = limits(100, at_least=0)
    network_rate: float = limits(0.5, above=0)
    free_weight: float = limits(1.0, at_least=0)
    sharpness_rate: float = limits(0.4, above=0)


@dataclass(frozen=True)
class FastNeuSConfig(PlainBlock):
    """The fields and the samples of a surface."""

    rendering_network: ColorConfig
    variance_network: VarianceConfig
    sdf_grid: SdfGridConfig = SdfGridConfig()
    packed: PackedConfig = PackedConfig()
    type: str = FAST_NEUS

    def check(self) -> None:
        """Raises ConfigError for what cannot work together."""
        self.sdf_grid.check()
        self.rendering_network.check(self.sdf_grid.features, "model.sdf_grid.d_feature")

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that weights depend on."""
        return ("sdf_grid", "rendering_network")

    @property
    def parameters(self) -> int:
        """Trained numbers; the sharpness is one."""
        return 1 + self.sdf_grid.parameters + self.rendering_network.parameters

    @property
    def buffer_bytes(self) -> int:
        """The cells and the hull, a byte each."""
        return 2 * self.packed.cells**3
