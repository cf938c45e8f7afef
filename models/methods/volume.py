"""The common part of methods that render rays: estimator, losses, exposure of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data.scenes.scene import Posed, Scene
from models.config.blocks import EXPOSURE, PhotographsConfig, TrainConfig
from models.estimators.base import Estimator
from models.fields.color import AFFINE, Exposure
from models.fields.state import take_rows
from models.machine.backend import jt
from models.methods.protocol import Model
from models.plan import TrainingPlan
from models.rendering.loss_table import terms_of, weights_of
from models.rendering.losses import LOSSES, binary_mask, robust_counts
from models.rendering.protocol import OfRays, Output, Targets
from models.structs import Noise, RayBatch, Term

# The order in which networks are optimised and saved, as published; others follow.
ORDER = ("nerf", "sdf_network_fine", "variance_network_fine", "color_network_fine", "nerf_coarse", "nerf_fine")
NO_EXPOSURE = PhotographsConfig()


class VolumeModel(Model):
    """A `models.methods.protocol.Model` without fields, objective, views and surface."""

    type: str  # value of model.type

    def __init__(
        self,
        fields: Any,
        estimator: Estimator,
        train: TrainConfig,
        plan: TrainingPlan,
        photographs: PhotographsConfig = NO_EXPOSURE,
    ) -> None:
        """`fields`: a SurfaceFields or RadianceFields."""
        self.fields, self.estimator, self.train, self.plan = fields, estimator, train, plan
        self.seed = train.seed
        self.exposure = Exposure() if plan.exposure.value else None
        self._photographs = photographs
        self.weights = weights_of(LOSSES, (self.type,), train, plan)

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """All networks by their names in checkpoints, in the order of optimisation."""
        learned = {} if self.exposure is None else {EXPOSURE: self.exposure}
        networks = self.fields.networks | self.estimator.networks | learned
        names = sorted(networks, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
        return {name: networks[name] for name in names}

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> Any:
        """Batches of a scene."""
        if self.exposure is not None:
            take_rows(self.exposure, {"affine": (scene.n_views, AFFINE)})
        return self.estimator.sampler(scene, batch_size, generator)

    def see(self, views: Posed) -> None:
        """See `Estimator.see`."""
        self.estimator.see(views)

    def begin(self) -> None:
        """See `Estimator.begin`."""
        self.estimator.begin()

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Adopt the number of images of a checkpoint."""
        if self.exposure is not None and EXPOSURE in shapes:
            take_rows(self.exposure, shapes[EXPOSURE])

    def rates(self, step: int) -> dict[str, float]:
        """Factors on the learning rate; exposure has a separate one."""
        return {} if self.exposure is None else {EXPOSURE: self._photographs.exposure_rate}

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """The jitter of a batch."""
        return self.estimator.draw_noise(entries, generator)

    def before_step(self, step: int) -> None:
        """Update the estimator by its schedule."""
        self.estimator.before_step(step)

    def after_collapse(self, step: int) -> str:
        """See `Estimator.after_collapse`."""
        return self.estimator.after_collapse(step)

    @property
    def behind(self) -> np.ndarray | None:
        """See `Model.behind`."""
        return self.estimator.behind(self.train.background_rgb)

    def exposed(self, rendering: Output, batch: RayBatch) -> Output:
        """Colours with the exposure of their images."""
        if self.exposure is None:
            return rendering
        return replace(rendering, rgb=self.exposure(rendering.rgb, jt.array(batch.view)))

    def targets(self, batch: RayBatch) -> Targets:
        """The pixels; with masks, colours count inside them."""
        mask = batch.mask if self.plan.uses_masks else None
        counts = binary_mask(None if mask is None else jt.array(mask), len(batch))
        return Targets(jt.array(batch.rgb), counts, None if mask is None else counts)

    def terms(self, rendered: OfRays) -> dict[str, Term]:
        """The losses with a weight at this step, by name."""
        if (scale := self.train.robust_scale) > 0.0:
            counts = robust_counts(rendered.counts, rendered.rendering.rgb, rendered.target, scale)
            rendered = replace(rendered, counts=counts)
        return terms_of(LOSSES, self.weights, rendered, rendered.step, self.train)

    def buffers(self) -> dict[str, np.ndarray]:
        """The buffers of the estimator."""
        return self.estimator.buffers()

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        self.estimator.load_buffers(buffers)
