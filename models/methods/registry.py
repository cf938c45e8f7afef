"""The methods: the block and the constructor of each. Imports Jittor only when a model is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from models.config.blocks import TrainConfig
from models.methods.block import ModelConfig
from models.methods.fast.conf import FAST_NERF, FAST_NEUS, FastNeRFConfig, FastNeuSConfig
from models.methods.gaussians.conf import GAUSSIANS, GaussiansConfig
from models.methods.nerf.conf import NERF, NeRFConfig
from models.methods.neus.conf import NEUS, NeuSConfig

if TYPE_CHECKING:
    from models.methods.protocol import Model


@dataclass(frozen=True)
class Method:
    """Estimator, fields, losses and schedules for a value of `model.type`."""

    block: type[Any]  # a frozen dataclass, a `models.methods.block.ModelConfig`
    build: Callable[[Any, TrainConfig, np.random.Generator], Model]  # builds the model with initialised networks


def _neus(conf: NeuSConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.methods.neus.build import build

    return build(conf, train, generator)


def _nerf(conf: NeRFConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.methods.nerf.build import build

    return build(conf, train, generator)


def _fast_neus(conf: FastNeuSConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.methods.fast.build import build_neus

    return build_neus(conf, train, generator)


def _fast_nerf(conf: FastNeRFConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.methods.fast.build import build_nerf

    return build_nerf(conf, train, generator)


def _gaussians(conf: GaussiansConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    from models.methods.gaussians.build import build

    return build(conf, train, generator)


METHODS: dict[str, Method] = {
    NEUS: Method(NeuSConfig, _neus),
    NERF: Method(NeRFConfig, _nerf),
    FAST_NEUS: Method(FastNeuSConfig, _fast_neus),
    FAST_NERF: Method(FastNeRFConfig, _fast_nerf),
    GAUSSIANS: Method(GaussiansConfig, _gaussians),
}


def build_model(conf: ModelConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    """The model of `model.type`; no other code reads the type."""
    return METHODS[conf.type].build(conf, train, generator)
