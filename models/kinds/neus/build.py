"""A NeuS from its conf, with fresh networks."""

from __future__ import annotations

import numpy as np

from models.config.blocks import TrainConfig
from models.fields.nerf import NeRF
from models.fields.registry import COLORS, SURFACES
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.neus.conf import NeuSConfig
from models.kinds.neus.model import NeuSModel
from models.kinds.neus.renderer import Fields, NeuSRenderer


def build_fields(conf: NeuSConfig, generator: np.random.Generator) -> Fields:
    """Freshly initialised networks; the background network only where it is used."""
    return Fields(
        sdf=SURFACES[conf.surface].build(conf.block(conf.surface), generator),
        color=COLORS[conf.color].build(conf.block(conf.color), generator),
        sharpness=SingleVarianceNetwork(conf.variance_network),
        nerf=NeRF(conf.nerf, generator) if conf.neus_renderer.n_outside > 0 else None,
    )


def build(conf: NeuSConfig, train: TrainConfig, generator: np.random.Generator) -> NeuSModel:
    """The model."""
    return NeuSModel(NeuSRenderer(build_fields(conf, generator), conf.neus_renderer), train)
