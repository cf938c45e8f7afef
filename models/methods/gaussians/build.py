"""Build the Gaussians of a conf, also with a learned exposure and white balance of each photograph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.config.strict import ConfigError
from models.fields.photographs import AFFINE, Exposure
from models.fields.state import take_rows
from models.machine.backend import jt
from models.methods.exposure_conf import EXPOSURE, PhotographsConfig
from models.methods.gaussians.batch import PictureSampler
from models.methods.gaussians.conf import GaussiansConfig, SplatsConfig
from models.methods.gaussians.model import GaussiansModel
from models.plan import TrainingPlan
from models.structs import Term, Var


class PhotographedGaussians(GaussiansModel):
    """The losses compare exposed colours with photographs; images show colours with the mean exposure."""

    def __init__(
        self,
        conf: SplatsConfig,
        photographs: PhotographsConfig,
        train: TrainConfig,
        generator: np.random.Generator,
        plan: TrainingPlan,
    ) -> None:
        super().__init__(conf, train, generator, plan)
        self.photographs = photographs
        self.exposure = Exposure()

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The Gaussians, then the exposure."""
        return super().networks | {EXPOSURE: self.exposure}

    @property
    def loss_weights(self) -> dict[str, float]:
        """Those of the Gaussians, and that of exposure."""
        return super().loss_weights | {EXPOSURE: self.photographs.exposure_weight}

    def rates(self, step: int) -> dict[str, float]:
        """The rates of Gaussians, and that of exposure."""
        return {**super().rates(step), EXPOSURE: self.photographs.exposure_rate}

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PictureSampler:
        """Also sets the number of photographs."""
        take_rows(self.exposure, {"affine": (scene.n_views, AFFINE)})
        return super().sampler(scene, batch_size, generator)

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Adopt the numbers of photographs and Gaussians of a checkpoint."""
        super().adapt(shapes)
        if EXPOSURE in shapes:
            take_rows(self.exposure, shapes[EXPOSURE])

    def taken(self, rgb: Var, view: int) -> Var:
        """Colours with the exposure of the photograph."""
        return self.exposure.of_picture(rgb, view)

    def _regularisers(self, entries: int) -> dict[str, Term]:
        """Also keeps exposures near the identity."""
        size = self.exposure.changes().sqr().mean() * float(entries)
        return super()._regularisers(entries) | {EXPOSURE: Term(size, float(entries), self.photographs.exposure_weight)}


def build(
    conf: GaussiansConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
) -> GaussiansModel:
    """The model; raises ConfigError if weights are to be averaged."""
    if train.ema_decay > 0:
        raise ConfigError(
            f"train.ema_decay = {train.ema_decay:g}: Gaussians that are relocated have no average; set it to 0"
        )
    if plan.exposure.value:
        return PhotographedGaussians(conf.gaussians, conf.photographs, train, generator, plan)
    return GaussiansModel(conf.gaussians, train, generator, plan)
