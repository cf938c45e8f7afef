"""Build a NeuS model with initialised networks."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.estimators.hierarchical import HierarchicalEstimator
from models.fields.nerf import NeRF
from models.fields.protocol import SurfaceFields
from models.fields.registry import COLORS, SURFACES
from models.fields.sharpness import SingleVarianceNetwork
from models.methods.neus.conf import NeuSConfig
from models.methods.neus.model import NeuSModel
from models.plan import TrainingPlan


def build(conf: NeuSConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan) -> NeuSModel:
    """The model, with a background network if the conf uses one."""
    fields = SurfaceFields(
        sdf=SURFACES[conf.surface].build(conf.block(conf.surface), generator),
        color=COLORS[conf.color].build(conf, generator),
        sharpness=SingleVarianceNetwork(conf.variance_network),
    )
    nerf = NeRF(conf.nerf, generator) if conf.neus_renderer.n_outside > 0 else None
    return NeuSModel(fields, HierarchicalEstimator(conf.neus_renderer, nerf), train, plan)
