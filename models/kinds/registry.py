"""Which kinds of model there are: the block of each, and what builds it. Knows no Jittor until one is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from models.config.blocks import TrainConfig
from models.kinds.nerf.conf import NERF, NeRFConfig
from models.kinds.neus.conf import NEUS, NeuSConfig

if TYPE_CHECKING:
    from models.kinds.protocol import Model


class ModelConfig(Protocol):
    """The block `model` of a conf, as its kind has it."""

    type: str

    def check(self) -> None:
        """Raises ConfigError for what cannot work together."""

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that weights depend on."""

    @property
    def n_importance(self) -> int:
        """The size that memory hangs on most: what `--mode plan` varies."""

    def allows_importance(self, count: int) -> bool:
        """Whether n_importance could be `count`."""

    def with_importance(self, count: int) -> Self:
        """The same with `count` as n_importance."""

    @property
    def parameters(self) -> int:
        """Trained numbers; the most that there may be where their number changes."""

    @property
    def ray_numbers(self) -> int:
        """float32 numbers that a step keeps of each entry of a batch, at the least."""


@dataclass(frozen=True)
class Kind:
    """A kind of model."""

    block: type[Any]  # a dataclass, `ModelConfig`
    build: Callable[[Any, TrainConfig, np.random.Generator], Model]  # with fresh networks


def _neus(conf: NeuSConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.kinds.neus.build import build

    return build(conf, train, generator)


def _nerf(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.kinds.nerf.build import build

    return build(conf, train, generator)


KINDS: dict[str, Kind] = {NEUS: Kind(NeuSConfig, _neus), NERF: Kind(NeRFConfig, _nerf)}


def build_model(conf: ModelConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    """The model that `model.type` asks for; nothing else asks for the type."""
    return KINDS[conf.type].build(conf, train, generator)
