"""Score a training by the PSNR of fixed views, and find a result that explains no photograph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.errors import UserError
from data.scenes.config import TEST, TRAINING, VALIDATION
from data.scenes.scene import Scene
from models.plan import SCORED_FROM
from models.results import image_metrics
from models.results.context import EvalContext
from models.results.experiment import Experiment, held_out_scene
from models.results.render import RenderedView
from models.training.record import Record

JUDGED_FROM = 1000  # steps after which the final score must exceed that of blurred photographs
VIEWS = 4  # number of views, evenly spaced
PIXELS = 4096  # of each view, about: one second for a network; the mean over 16,000 pixels varies by 0.1 dB
BLUR = 1 / 16  # standard deviation as a fraction of the longer side: keeps colours and layout, removes the object


@dataclass(frozen=True)
class ScoredViews:
    """The views with which a training is scored."""

    scene: Scene
    views: tuple[int, ...]
    group: str  # TRAINING or VALIDATION

    @property
    def validation(self) -> Scene | None:
        """The scene of validation photographs; None for training photographs."""
        return self.scene if self.group == VALIDATION else None

    def text(self) -> str:
        """Their number and group."""
        return f"{len(self.views)} {self.group} photographs"

    def level(self, context: EvalContext, view: int) -> int:
        """The resolution level with about PIXELS pixels; 1 for Gaussians, which are wider in a smaller image."""
        return 1 if context.model.shows_pictures else max(1, round((np.prod(self.scene.size(view)) / PIXELS) ** 0.5))

    def score(self, context: EvalContext) -> float:
        """Mean PSNR of the renderings, in dB; inside the masks if that is the primary metric.

        See `image_metrics.exposure_aligned` for photographs whose exposure is learned or unknown.
        """
        is_inside = image_metrics.mask_first(context, self.scene)

        def rendering(view: int, level: int) -> RenderedView:
            seen = context.render(*self.scene.rays(view, level))
            photograph, mask = self.scene.rgb_image(view, level), self.scene.mask_image(view, level)
            inside = mask > image_metrics.HALF if is_inside and mask is not None else None
            return replace(seen, rgb=image_metrics.exposure_aligned(context, seen.rgb, photograph, inside))

        return self._mean(context, rendering)

    def measured(self, context: EvalContext) -> float | None:
        """The score of a state; None before step SCORED_FROM, or if no view can be scored."""
        score = self.score(context) if context.step >= SCORED_FROM else np.inf
        return score if np.isfinite(score) else None

    def failure(self, context: EvalContext, score: float) -> str:
        """Why the result of a finished training is unusable, by its score; "" if it is usable."""
        if context.step < JUDGED_FROM or score >= (blurred := self.blurred(context)):
            return ""
        return (
            f"the renderings of {self.text()} reach {score:.1f} dB, less than blurred photographs ({blurred:.1f} dB): "
            "the training found no surface that explains the photographs"
        )

    def blurred(self, context: EvalContext) -> float:
        """The score of the photographs, blurred by BLUR."""

        def rendering(view: int, level: int) -> RenderedView:
            photograph = self.scene.rgb_image(view, level)
            soft = cv2.GaussianBlur(photograph, (0, 0), BLUR * max(photograph.shape[:2]))
            flat = np.zeros(photograph.shape[:2], np.float32)
            return RenderedView(soft, np.zeros_like(photograph), flat, flat)

        return self._mean(context, rendering)

    def _mean(self, context: EvalContext, rendering: Any) -> float:
        """Mean PSNR of the images that `rendering` returns for a view at a level."""
        is_inside = image_metrics.mask_first(context, self.scene)
        found = []
        for view in self.views:
            level = self.level(context, view)
            mask = self.scene.mask_image(view, level)
            compared = image_metrics.compare(rendering(view, level), self.scene.rgb_image(view, level), mask)
            found.append(compared.psnr_mask if is_inside and compared.psnr_mask is not None else compared.psnr)
        values = [value for value in found if value is not None and np.isfinite(value)]
        return float(np.mean(values)) if values else np.inf


def scored_views(experiment: Experiment) -> ScoredViews:
    """Validation photographs; training photographs if there are no usable ones."""
    try:
        validation = held_out_scene(experiment, VALIDATION)
    except UserError:
        validation = None
    scene, group = (experiment.scene, TRAINING) if validation is None else (validation, VALIDATION)
    return ScoredViews(scene, tuple(int(view) for view in evenly_spaced(scene.n_views, VIEWS)), group)


def deciding_group(record: Record, has_test: bool) -> str | None:
    """The group whose PSNR decided a training; None if nothing was decided."""
    return (record.group or (TEST if has_test else TRAINING)) if record.best_step else None
