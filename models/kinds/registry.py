"""Which kinds of model there are."""

from __future__ import annotations

import numpy as np

from models.config import NERF, ModelConfig, TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.nerf import NeRF
from models.fields.sdf import SDFNetwork
from models.fields.sharpness import SingleVarianceNetwork
from models.kinds.nerf.model import NeRFModel
from models.kinds.nerf.renderer import NeRFRenderer, RadianceFields
from models.kinds.neus.model import NeuSModel
from models.kinds.neus.renderer import Fields, NeuSRenderer
from models.kinds.protocol import Model


def build_fields(conf: ModelConfig, generator: np.random.Generator) -> Fields:
    """Freshly initialised networks of a surface; the background network only where it is used."""
    return Fields(
        sdf=SDFNetwork(conf.sdf_network, generator),
        color=RenderingNetwork(conf.rendering_network, generator),
        sharpness=SingleVarianceNetwork(conf.variance_network),
        nerf=NeRF(conf.nerf, generator) if conf.neus_renderer.n_outside > 0 else None,
    )


def build_model(conf: ModelConfig, train: TrainConfig, generator: np.random.Generator) -> Model:
    """The model that `model.type` asks for, with fresh networks; nothing else asks for the type."""
    if conf.type == NERF:
        fields = RadianceFields(coarse=NeRF(conf.nerf, generator), fine=NeRF(conf.nerf, generator))
        return NeRFModel(NeRFRenderer(fields, conf.nerf_renderer), train)
    return NeuSModel(NeuSRenderer(build_fields(conf, generator), conf.neus_renderer), train)
