"""Detects a training that scores lower than before: fixed views at each checkpoint; returns to the best checkpoint.

A collapse is not a matter of numbers that are not finite: cells that hold the surface are taken for empty, or the
background takes over what the surface showed, and the loss stays finite and high.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import cv2
import numpy as np

from data.errors import UserError
from data.scenes.scene import Scene
from models.checkpoints.folder import CheckpointFolder
from models.evaluation import image_metrics
from models.experiment import Experiment, held_out_scene
from models.machine.ranks.ranks import Ranks
from models.monitoring.logger import RunLogger
from models.monitoring.recovery import Recovery
from models.results.context import EvalContext
from models.results.render import RenderedView
from models.training.trainer import Trainer

STATE_KEY = "scores"  # in the state of a checkpoint
SCORED_FROM = 500  # steps: what is younger has nothing to lose
JUDGED_FROM = 1000  # steps from which on the end of a training is held to a blurred photograph
VIEWS = 4  # that are scored, spread evenly over those there are
PIXELS = 4096  # of each, about: a second's work for a network, and the mean of 16,000 pixels moves by 0.1 dB
FALL = 1.0  # dB below the best: a schedule (finer levels, shorter steps) explains less
PATIENCE = 2  # scores in a row that low: a schedule passes
MOST_RETURNS = 1  # the same again would follow
BLUR = 1 / 16  # of a photograph's longer side: the Gaussian that leaves colours and places, and no object


@dataclass(frozen=True)
class Scores:
    """What a resumed training needs to judge as an uninterrupted one would."""

    best: float = -np.inf  # dB
    best_step: int = 0
    low: int = 0  # scores in a row more than FALL below the best
    returns: int = 0
    end_iter: int = 0  # of the schedule that they belong to

    def after(self, step: int, score: float) -> Scores:
        """With the score of one more checkpoint."""
        if score > self.best:
            return replace(self, best=score, best_step=step, low=0)
        return replace(self, low=self.low + 1 if score < self.best - FALL else 0)


def restored(state: Mapping[str, Any], end_iter: int) -> Scores:
    """Those of a checkpoint's state; none where it has none, or those of a schedule of another length.

    A training that goes on for longer has coarser levels and longer steps again, and renderings that are worse for it.
    """
    values = state.get(STATE_KEY, {})
    found = Scores(**{entry.name: values[entry.name] for entry in fields(Scores) if entry.name in values})
    return found if found.end_iter == end_iter else Scores(end_iter=end_iter)


@dataclass(frozen=True)
class ScoredViews:
    """The views that a training is scored by."""

    scene: Scene
    views: tuple[int, ...]
    are_held_out: bool

    def text(self) -> str:
        """Which they are."""
        return f"{len(self.views)} {'held-out' if self.are_held_out else 'training'} views"

    def level(self, view: int) -> int:
        """The resolution level at which a view has about PIXELS."""
        return max(1, round((np.prod(self.scene.size(view)) / PIXELS) ** 0.5))

    def score(self, context: EvalContext) -> float:
        """Mean PSNR of the renderings, in dB; inside the masks where these count first."""
        return self._mean(context, lambda view, level: context.render(*self.scene.rays(view, level)))

    def blurred(self, context: EvalContext) -> float:
        """The same of the photographs themselves, blurred by BLUR."""

        def rendering(view: int, level: int) -> RenderedView:
            photograph = self.scene.rgb_image(view, level)
            soft = cv2.GaussianBlur(photograph, (0, 0), BLUR * max(photograph.shape[:2]))
            flat = np.zeros(photograph.shape[:2], np.float32)
            return RenderedView(soft, np.zeros_like(photograph), flat, flat)

        return self._mean(context, rendering)

    def _mean(self, context: EvalContext, rendering: Any) -> float:
        """Mean PSNR of what `rendering` gives for a view at a level."""
        is_inside = image_metrics.mask_first(context, self.scene)
        found = []
        for view in self.views:
            level = self.level(view)
            mask = self.scene.mask_image(view, level)
            compared = image_metrics.compare(rendering(view, level), self.scene.rgb_image(view, level), mask)
            found.append(compared.psnr_mask if is_inside and compared.psnr_mask is not None else compared.psnr)
        values = [value for value in found if value is not None and np.isfinite(value)]
        return float(np.mean(values)) if values else np.inf


def scored_views(experiment: Experiment) -> ScoredViews:
    """Of the held-out photographs; of those of the training where there are none that can be used."""
    try:
        held_out = held_out_scene(experiment)
    except UserError:
        held_out = None
    scene = experiment.scene if held_out is None else held_out
    views = np.unique(np.linspace(0, scene.n_views - 1, VIEWS).round().astype(int))
    return ScoredViews(scene, tuple(int(view) for view in views), held_out is not None)


class CollapseWatch:
    """Scores one training, and goes back where it has to."""

    def __init__(
        self, experiment: Experiment, trainer: Trainer, recovery: Recovery, log: RunLogger, ranks: Ranks
    ) -> None:
        self._experiment, self._trainer, self._recovery = experiment, trainer, recovery
        self._log, self._ranks = log, ranks
        self._views: ScoredViews | None = None
        state = experiment.checkpoint.state if experiment.checkpoint else {}
        self._scores = restored(state, trainer.conf.end_iter)
        self._spare()

    @property
    def _store(self) -> CheckpointFolder | None:
        """Where the best checkpoint is; None for ranks but the first, and for results."""
        return self._experiment.store

    def state(self) -> dict[str, Any]:
        """What `restored` reads back from a checkpoint's state; {} before the first score."""
        return {STATE_KEY: asdict(self._scores)} if self._scores.best_step else {}

    def at_checkpoint(self, context: EvalContext) -> None:
        """Score a state that is about to be saved; goes back to the best where it is low for too long."""
        if context.step < SCORED_FROM:
            return
        score = self._score(context)
        if score is not None and self._scores.low >= PATIENCE:
            self._go_back(score)

    def at_end(self, context: EvalContext) -> str:
        """Score the last state; it goes back, or to the better of both. Why the training failed, "" where it did not.

        Where it goes back the trainer has steps left to take.
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
        blurred = self._views.blurred(context)
        if score >= blurred:
            return ""
        return (
            f"the renderings of {self._views.text()} reach {score:.1f} dB, less than blurred photographs "
            f"({blurred:.1f} dB): the training found no surface that explains the photographs"
        )

    def _score(self, context: EvalContext) -> float | None:
        """The score of a state, counted; None where there is nothing to measure."""
        self._views = self._views or scored_views(self._experiment)
        score = self._views.score(context)
        if not np.isfinite(score):
            return None
        self._scores = self._scores.after(context.step, score)
        self._spare()
        self._log.scalars(context.step, {"Statistics/psnr_views": score})
        self._log.note(f"step {context.step}: PSNR of {self._views.text()} {score:.2f} dB")
        return score

    def _spare(self) -> None:
        """Keep the best checkpoint, where it is written."""
        if self._store is not None:
            self._store.spare(self._scores.best_step)

    def _go_back(self, score: float) -> bool:
        """To the best checkpoint, with a lower rate and what is pruned put off; False where that was done before."""
        scores, low_step = self._scores, self._trainer.finished_steps
        if scores.returns >= MOST_RETURNS or not self._restore_best():
            return False
        self._scores = replace(scores, low=0, returns=scores.returns + 1)
        words = self._recovery.lower_rate(low_step) + self._trainer.model.after_collapse(low_step)
        self._log.warn(
            f"step {low_step}: PSNR of {self._views.text()} fell from {scores.best:.1f} dB at step "
            f"{scores.best_step} to {score:.1f} dB: returning to that step {words}"
        )
        return True

    def _restore_best(self) -> bool:
        """Put the trainer to the best checkpoint; False where it is not there any more."""
        found = self._store.at(self._scores.best_step) if self._ranks.is_first else None
        found = self._ranks.broadcast(found)
        if found is None:
            return False
        if self._ranks.is_first:
            self._store.set_later_aside(found.step)
        self._trainer.restore(found)
        return True
