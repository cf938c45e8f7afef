"""The methods: the block and the constructor of each. Imports Jittor only when a model is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from models.config.blocks import TrainConfig
from models.fields.registry import NERF
from models.methods.block import ModelConfig
from models.methods.confs import FAST_NERF, FAST_NEUS, NEUS, FastNeRFConfig, FastNeuSConfig, NeRFConfig, NeuSConfig
from models.methods.decisions import decide_fast_neus, decide_gaussians, decide_nerf, decide_neus, decide_plain
from models.methods.gaussians.conf import GAUSSIANS, GaussiansConfig
from models.plan import EarlierPlan, Measurements, TrainingPlan

if TYPE_CHECKING:
    from models.methods.protocol import Model


@dataclass(frozen=True)
class Method:
    """Estimator, fields, losses and schedules for a value of `model.type`."""

    block: type[Any]  # a frozen dataclass, a `models.methods.block.ModelConfig`
    # Builds the model with initialised networks.
    build: Callable[[Any, TrainConfig, np.random.Generator, TrainingPlan], Model]
    decide: Callable[[Any, TrainConfig, Measurements, EarlierPlan], TrainingPlan] = decide_plain


def _imported(module: str, name: str = "build") -> Callable[..., Model]:
    """A function of a module of this package, which is imported at the first call."""
    return lambda *given: getattr(import_module(f"models.methods.{module}"), name)(*given)


METHODS: dict[str, Method] = {
    NEUS: Method(NeuSConfig, _imported("neus"), decide_neus),
    NERF: Method(NeRFConfig, _imported("nerf"), decide_nerf),
    FAST_NEUS: Method(FastNeuSConfig, _imported("fast", "build_neus"), decide_fast_neus),
    FAST_NERF: Method(FastNeRFConfig, _imported("fast", "build_nerf"), decide_nerf),
    GAUSSIANS: Method(GaussiansConfig, _imported("gaussians.model"), decide_gaussians),
}


def decide(conf: ModelConfig, train: TrainConfig, measured: Measurements, earlier: EarlierPlan) -> TrainingPlan:
    """The plan of a training; `earlier`: that of a resumed training, `EarlierPlan()` for a new one."""
    return METHODS[conf.type].decide(conf, train, measured, earlier)


def build_model(
    conf: ModelConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan | None = None
) -> Model:
    """The model of `model.type`, without a plan for no scene; no other code but `decide` reads the type."""
    return METHODS[conf.type].build(conf, train, generator, plan or TrainingPlan())
