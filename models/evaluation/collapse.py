"""Detect a fall of the PSNR of fixed views at checkpoints, and return to the best checkpoint.

A collapse may occur with finite values: cells that contain the surface are marked empty, or the background replaces the
surface, and the loss remains finite and high.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.errors import UserError
from data.scenes.scene import Scene
from models.checkpoints.folder import CheckpointFolder
from models.evaluation import image_metrics
from models.experiment import Experiment, held_out_scene
from models.monitoring.logger import RunLogger
from models.monitoring.recovery import Recovery
from models.plan import SCORED_FROM
from models.results.context import EvalContext
from models.results.render import RenderedView
from models.training.trainer import Trainer

STATE_KEY = "scores"  # key in the state of a checkpoint
CURVE_KEY = "score_curve"  # the same, for every score: [step, seconds of training, dB]
JUDGED_FROM = 1000  # steps after which the final score must exceed that of blurred photographs
VIEWS = 4  # number of views, evenly spaced
PIXELS = 4096  # of each view, about: one second for a network; the mean over 16,000 pixels varies by 0.1 dB
FALL = 1.0  # dB below the best; changes of a schedule (finer levels, shorter steps) cause smaller falls
PATIENCE = 2  # consecutive low scores; a change of a schedule is transient
MOST_RETURNS = 1  # a further return would have the same result
BLUR = 1 / 16  # standard deviation as a fraction of the longer side: keeps colours and layout, removes the object


@dataclass(frozen=True)
class Scores:
    """The scores that a resumed training needs to decide like an uninterrupted one."""

    best: float = -np.inf  # dB
    best_step: int = 0
    low: int = 0  # consecutive scores more than FALL below the best
    returns: int = 0
    end_iter: int = 0  # length of their schedule

    def after(self, step: int, score: float) -> Scores:
        """With the score of a further checkpoint."""
        if score > self.best:
            return replace(self, best=score, best_step=step, low=0)
        return replace(self, low=self.low + 1 if score < self.best - FALL else 0)


def restored(state: Mapping[str, Any], end_iter: int) -> Scores:
    """The scores in a checkpoint's state; empty without any, or for a schedule of another length.

    A training that is extended returns to coarser levels and longer steps, which reduces its scores.
    """
    values = state.get(STATE_KEY, {})
    found = Scores(**{entry.name: values[entry.name] for entry in fields(Scores) if entry.name in values})
    return found if found.end_iter == end_iter else Scores(end_iter=end_iter)


@dataclass(frozen=True)
class ScoredViews:
    """The views with which a training is scored."""

    scene: Scene
    views: tuple[int, ...]
    are_held_out: bool

    @property
    def held_out(self) -> Scene | None:
        """The scene of the views; None for training views."""
        return self.scene if self.are_held_out else None

    def text(self) -> str:
        """Number and type of the views."""
        return f"{len(self.views)} {'held-out' if self.are_held_out else 'training'} views"

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

    def blurred(self, context: EvalContext) -> float:
        """The same for the photographs, blurred by BLUR."""

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
    """Held-out views; training views if no held-out ones are usable."""
    try:
        held_out = held_out_scene(experiment)
    except UserError:
        held_out = None
    scene = experiment.scene if held_out is None else held_out
    views = evenly_spaced(scene.n_views, VIEWS)
    return ScoredViews(scene, tuple(int(view) for view in views), held_out is not None)


class CollapseWatch:
    """Scores one training, and restores its best checkpoint if needed."""

    def __init__(self, experiment: Experiment, trainer: Trainer, recovery: Recovery, log: RunLogger) -> None:
        self._experiment, self._trainer, self._recovery = experiment, trainer, recovery
        self._log = log
        state = experiment.checkpoint.state if experiment.checkpoint else {}
        self._scores = restored(state, trainer.conf.end_iter)
        self._curve = list(state.get(CURVE_KEY, []))
        self._spare()

    @cached_property
    def views(self) -> ScoredViews:
        """The views that are scored, loaded at the first use."""
        return scored_views(self._experiment)

    @property
    def _store(self) -> CheckpointFolder | None:
        """The store with the best checkpoint; None for results, and if another process writes."""
        return self._experiment.store

    def state(self) -> dict[str, Any]:
        """The entries of a checkpoint's state: the scores, for `restored`, and the curve; {} before the first one."""
        scores = {STATE_KEY: asdict(self._scores)} if self._scores.best_step else {}
        return scores | ({CURVE_KEY: self._curve} if self._curve else {})

    def at_checkpoint(self, context: EvalContext) -> None:
        """Score a state before it is saved; restore the best one if scores are low for too long."""
        if context.step < SCORED_FROM:
            return
        score = self._score(context)
        if score is not None and self._scores.low >= PATIENCE:
            self._go_back(score)

    def at_end(self, context: EvalContext) -> str:
        """Score the last state; restore the best one, or keep the better of both.

        Returns why the training failed, "" if it did not. If the best state is restored, the trainer has further steps
        to take.
        """
        end = self._trainer.conf.end_iter
        if end < SCORED_FROM:
            return ""
        score = self._score(context)
        if score is None:
            return ""
        if self._scores.low and not self._go_back(score) and self._restore_best():
            self._trainer.rewind_to(end)
            score = self._scores.best
            self._log.warn(
                f"step {end}: the training ends with the weights of step {self._scores.best_step}, {score:.1f} dB"
            )
        if self._trainer.finished_steps < end or end < JUDGED_FROM:
            return ""
        blurred = self.views.blurred(context)
        if score >= blurred:
            return ""
        return (
            f"the renderings of {self.views.text()} reach {score:.1f} dB, less than blurred photographs "
            f"({blurred:.1f} dB): the training found no surface that explains the photographs"
        )

    def _score(self, context: EvalContext) -> float | None:
        """The score of a state; None if nothing can be measured."""
        score = self.views.score(context)
        if not np.isfinite(score):
            return None
        self._scores = self._scores.after(context.step, score)
        self._curve = [*self._curve, [context.step, context.seconds, score]]
        self._spare()
        self._log.scalars(context.step, {"Statistics/psnr_views": score})
        self._log.note(f"step {context.step}: PSNR of {self.views.text()} {score:.2f} dB")
        return score

    def _spare(self) -> None:
        """Exclude the best checkpoint from deletion, once it is written."""
        if self._store is not None:
            self._store.spare(self._scores.best_step)

    def _go_back(self, score: float) -> bool:
        """Restore the best checkpoint, with a lower rate and delayed pruning; False if this was done before."""
        scores, low_step = self._scores, self._trainer.finished_steps
        if scores.returns >= MOST_RETURNS or not self._restore_best():
            return False
        self._scores = replace(scores, low=0, returns=scores.returns + 1)
        words = self._recovery.lower_rate(low_step) + self._trainer.model.after_collapse(low_step)
        self._log.warn(
            f"step {low_step}: PSNR of {self.views.text()} fell from {scores.best:.1f} dB at step "
            f"{scores.best_step} to {score:.1f} dB: returning to that step {words}"
        )
        return True

    def _restore_best(self) -> bool:
        """Restore the best checkpoint; False if it no longer exists."""
        found = self._store.at(self._scores.best_step)
        if found is None:
            return False
        self._store.set_later_aside(found.step)
        self._trainer.restore(found)
        return True
