"""Gaussians that learn of the photographs too: exposure and white balance of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.fields.photographs import AFFINE, Exposure
from models.fields.state import take_rows
from models.machine.backend import jt
from models.methods.exposure_conf import PhotographsConfig
from models.methods.gaussians.batch import PictureSampler
from models.methods.gaussians.conf import SplatsConfig
from models.methods.gaussians.model import GaussiansModel
from models.structs import Term, Var

EXPOSURE = "exposure"  # the network


class PhotographedGaussians(GaussiansModel):
    """Colours are held to a photograph as that one has them; pictures show them as they are on average."""

    def __init__(
        self, conf: SplatsConfig, photographs: PhotographsConfig, train: TrainConfig, generator: np.random.Generator
    ) -> None:
        super().__init__(conf, train, generator)
        self.photographs = photographs
        self.exposure = Exposure()

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The splats, then what is learned of the photographs."""
        return super().networks | {EXPOSURE: self.exposure}

    def rates(self, step: int) -> Mapping[str, float]:
        """Colours of photographs have a rate of their own."""
        return {**super().rates(step), EXPOSURE: self.photographs.exposure_rate}

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PictureSampler:
        """The rows are those of the scene's photographs."""
        take_rows(self.exposure, {"affine": (scene.n_views, AFFINE)})
        return super().sampler(scene, batch_size, generator)

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Take on the number of photographs, and of splats."""
        super().adapt(shapes)
        if EXPOSURE in shapes:
            take_rows(self.exposure, shapes[EXPOSURE])

    def taken(self, rgb: Var, view: int) -> Var:
        """With the exposure of the photograph."""
        return self.exposure.of_picture(rgb, view)

    def _regularisers(self, entries: int) -> dict[str, Term]:
        """And what keeps the photographs near the identity."""
        size = self.exposure.changes().sqr().mean() * float(entries)
        return super()._regularisers(entries) | {EXPOSURE: Term(size, float(entries), self.photographs.exposure_weight)}
