"""Watch a training, and return to an earlier state where it goes wrong.

A step that is not finite changes no weight (`Guard`). After `train.max_bad_steps` of them in a row, or after two low
scores, training returns to its best finite state with other random numbers, zero moments and half the learning rate.
At the end the best state remains, with the reason if the training failed. Values may remain finite in a collapse: cells
that contain the surface are marked empty, or the background replaces the surface, and the loss remains high.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import numpy as np

from data.errors import listed
from models.training.checkpoint import Checkpoint, DivergedError, Record, recorded
from models.training.guard import MAX_NAMED, BadStep, find_in_weights
from models.training.trainer import Trainer

MOST_RESTARTS = 3  # without progress in between
PROGRESS = 300  # steps beyond the failed one after which attempts are counted from zero again
LOW_SCORES = 2  # consecutive low scores; a change of a schedule is transient
MOST_FALLS = 1  # a further return would have the same result
PROBE_POINTS = 24  # per side of a grid: 7,000 of them are in the sphere and take a few milliseconds


def probe_points() -> np.ndarray:
    """Points of a grid in the unit sphere, float32 [P, 3]."""
    line = np.linspace(-1.0, 1.0, PROBE_POINTS, dtype=np.float32)
    grid = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
    return grid[(grid**2).sum(axis=1) < 1.0]


class Store(Protocol):
    """The saved states of a training."""

    def at(self, step: int) -> Checkpoint | None:
        """That of a step; None if there is none."""

    def last_finite(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest one in which all numbers are finite; damaged ones are reported through `warn`."""

    def protect(self, step: int) -> None:
        """Keep that of this step, which may be returned to, and no other one."""

    def retire_after(self, step: int) -> None:
        """Take those of later steps out, so that no training continues from them."""


class Log(Protocol):
    """What is reported about a training."""

    def info(self, *lines: str) -> None:
        """Lines for the user."""

    def note(self, text: str) -> None:
        """A line that is not shown."""

    def warn(self, text: str) -> None:
        """A warning."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Numbers of a step by TensorBoard tag."""


class Watch:
    """Watches one training."""

    def __init__(self, trainer: Trainer, store: Store, log: Log, before: Mapping[str, Any]) -> None:
        """`before`: the state of the checkpoint that a training is resumed from; {} for a new one."""
        self._trainer, self._store, self._log = trainer, store, log
        self.record = recorded(before, trainer.conf.end_iter)
        trainer.guard.bad_in_a_row, trainer.rate_factor = self.record.skipped, self.record.rate_factor
        self._last_good: Checkpoint | None = None  # the last usable state, since the last progress
        self._beginning: Checkpoint | None = None  # the initial state of a session that has no checkpoint yet
        if self.record.returns:
            times = "once" if self.record.returns == 1 else f"{self.record.returns} times"
            log.info(f"the training has returned to an earlier state {times}: it continues with {self._rate_words()}")

    def begin(self) -> None:
        """Keep the best checkpoint, and the initial state: the training may diverge before its first checkpoint."""
        self._store.protect(self.record.best_step)
        if self._trainer.optimizer.steps == 0:
            self._beginning = self._present(self._trainer.finished_steps)

    def after_step(self, ends: bool = False) -> None:
        """Report the steps skipped since the last call; return to an earlier state after too many in a row.

        `ends`: at the last step, training also returns if all steps of the session were skipped. Raises DivergedError
        if returning did not help, with the trainer at the last finite state.
        """
        guard = self._trainer.guard
        skipped = guard.skipped_steps()
        for bad in skipped:
            self._log.warn(bad.sentence())
        if skipped and ((ends and not guard.has_taken) or guard.bad_in_a_row >= self._trainer.conf.max_bad_steps):
            self._recover(skipped[-1])

    def after_score(self, seconds: float, score: float, group: str, views: str, is_last: bool) -> float:
        """Record a score in dB of the `views` of a `group` of photographs; `is_last`: the training ends with this step.

        Training returns to the best checkpoint if scores are low for too long; at the last step it keeps the weights of
        the best one if a further return is of no use. Returns the score of the weights that the trainer has then.
        """
        step = self._trainer.finished_steps
        self.record = self.record.after_score(step, seconds, score, group)
        self._store.protect(self.record.best_step)
        self._log.scalars(step, {"Statistics/psnr_views": score})
        self._log.note(f"step {step}: PSNR of {views}, reduced in size, {score:.2f} dB")
        before = self.record
        best = self._store.at(before.best_step) if before.low >= (1 if is_last else LOW_SCORES) else None
        if best is None or (before.falls >= MOST_FALLS and not is_last):
            return score
        if before.falls < MOST_FALLS:
            fell = f"step {step}: PSNR of {views} fell from {before.best:.1f} dB at step {before.best_step} to "
            self._return_to(best, replace(before, low=0, falls=before.falls + 1), f"{fell}{score:.1f} dB", step)
        else:
            self._trainer.restore(best)
            self._trainer.finished_steps = step  # with the weights of an earlier one
            self._store.retire_after(before.best_step)
            self._log.warn(
                f"step {step}: the training ends with the weights of step {before.best_step}, {before.best:.1f} dB"
            )
        return before.best

    def _recover(self, last: BadStep) -> None:
        """Retry from a finite state: the present one first, then the best checkpoint."""
        trainer, before = self._trainer, self.record
        count, seen = trainer.guard.bad_in_a_row, listed(last.findings, MAX_NAMED)
        why = f"{count} {'step was' if count == 1 else 'steps in a row were'} skipped ({seen})"
        launched = 1 - trainer.finish_step()  # the step that was launched meanwhile, if it was skipped too
        good = trainer.finished_steps - count - launched
        trainer.guard.skipped_steps()
        if trainer.optimizer.steps >= PROGRESS and good >= before.reached + PROGRESS:
            before, self._last_good = replace(before, attempts=0), None
        if self._last_good is None and not find_in_weights(last.weights) and self._is_usable():
            self._last_good = self._present(good)
        if before.attempts >= MOST_RESTARTS:
            self._give_up(why)
        present = self._last_good if before.attempts == 0 else None
        target = present or self._best() or self._beginning or self._last_good
        if target is None:
            raise DivergedError(f"{why}, and there is no checkpoint with finite weights to return to")
        after = replace(before, attempts=before.attempts + 1, reached=max(good, before.reached))
        self._return_to(target, after, why)

    def _best(self) -> Checkpoint | None:
        """The newest finite checkpoint; that with the best score if later scores are low."""
        best = self._store.at(self.record.best_step) if self.record.low else None
        return best or self._store.last_finite(self._log.warn)

    def _return_to(self, target: Checkpoint, record: Record, why: str, fallen: int | None = None) -> None:
        """Continue from `target` with zero moments, other random numbers and half the learning rate.

        `fallen`: the step up to which renderings became worse.
        """
        self._trainer.restore(target)
        self._store.retire_after(target.step)
        self.record = replace(record, returns=record.returns + 1)
        self._start_afresh()
        more = f" (attempt {record.attempts} of {MOST_RESTARTS})"
        if fallen is not None:
            more = self._trainer.model.after_collapse(fallen)
        self._log.warn(
            f"{why}: returning to the weights of step {target.step}, with other random numbers, zero Adam moments and "
            f"{self._rate_words()}{more}"
        )

    def _start_afresh(self) -> None:
        """Reset moments, learning rate and random numbers at the current step."""
        self._trainer.optimizer.reset_moments()
        self._trainer.rate_factor = self.record.rate_factor
        self._trainer.reseed(self._trainer.conf.seed, self._trainer.finished_steps, self.record.returns)

    def _give_up(self, why: str) -> NoReturn:
        """Restore the last good state and raise DivergedError."""
        if target := self._last_good or self._best() or self._beginning:
            self._trainer.restore(target)
        tried = f"{MOST_RESTARTS} restarts from finite states failed in the same way, the last one with "
        tried += self._rate_words()
        self.record = replace(self.record, returns=self.record.returns + 1, attempts=0, reached=0)
        self._start_afresh()
        raise DivergedError(f"{why}; {tried}")

    def _present(self, step: int) -> Checkpoint:
        """A checkpoint of the current weights, with the step number `step`."""
        return replace(self._trainer.checkpoint(), step=step)

    def _is_usable(self) -> bool:
        """Whether the weights are usable: the surface field is finite."""
        surface = self._trainer.model.level_set
        return surface is None or bool(np.isfinite(surface.outward(probe_points())).all())

    def _rate_words(self) -> str:
        """The learning rate, as part of a sentence."""
        return f"{self.record.rate_factor:.3g} times the learning rate of the conf"
