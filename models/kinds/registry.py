"""Which kinds of model there are: the block of each, and what builds it. Knows no Jittor until one is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from models.config.blocks import TrainConfig
from models.kinds.block import ModelConfig
from models.kinds.fast.conf import FAST_NERF, FAST_NEUS, FastNeRFConfig, FastNeuSConfig
from models.kinds.gaussians.conf import GAUSSIANS, GaussiansConfig
from models.kinds.nerf.conf import NERF, NeRFConfig
from models.kinds.neus.conf import NEUS, NeuSConfig

if TYPE_CHECKING:
    from models.kinds.protocol import Model


@dataclass(frozen=True)
class Kind:
    """A kind of model."""

    block: type[Any]  # a frozen dataclass, a `models.kinds.block.ModelConfig`
    build: Callable[[Any, TrainConfig, np.random.Generator], Model]  # with fresh networks


def _neus(conf: NeuSConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.kinds.neus.build import build

    return build(conf, train, generator)


def _nerf(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.kinds.nerf.build import build

    return build(conf, train, generator)


def _fast_neus(conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.kinds.fast.build import build_neus

    return build_neus(conf, train, generator)


def _fast_nerf(conf: FastNeRFConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.kinds.fast.build import build_nerf

    return build_nerf(conf, train, generator)


def _gaussians(conf: GaussiansConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.kinds.gaussians.build import build

    return build(conf, train, generator)


KINDS: dict[str, Kind] = {
    NEUS: Kind(NeuSConfig, _neus),
    NERF: Kind(NeRFConfig, _nerf),
    FAST_NEUS: Kind(FastNeuSConfig, _fast_neus),
    FAST_NERF: Kind(FastNeRFConfig, _fast_nerf),
    GAUSSIANS: Kind(GaussiansConfig, _gaussians),
}


def build_model(conf: ModelConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    """The model that `model.type` asks for; nothing else asks for the type."""
    return KINDS[conf.type].build(conf, train, generator)
