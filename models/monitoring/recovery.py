"""Recovery of a training: report skipped steps, return to a checkpoint after many in a row, report a collapse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from data.errors import UserError, is_allocation_failure, listed
from models.checkpoints.folder import CheckpointFolder
from models.checkpoints.ours import Checkpoint
from models.machine import memory
from models.methods.conf import ExperimentConfig
from models.monitoring import health, setbacks
from models.monitoring.interrupts import DivergedError
from models.monitoring.logger import RunLogger, complain
from models.monitoring.setbacks import Setbacks
from models.training.guard import MAX_NAMED, BadStep, find_in_weights
from models.training.trainer import Trainer

LARGEST_WEIGHT = 1e6  # Gaussians may be at 1e5 radii; all other weights are far smaller

Result = TypeVar("Result")


class Recovery:
    """Recovers one training, and counts the recoveries."""

    def __init__(
        self,
        conf: ExperimentConfig,
        store: CheckpointFolder,
        trainer: Trainer,
        log: RunLogger,
    ) -> None:
        self.conf = conf
        self.store = store
        self.trainer = trainer
        self.log = log
        self._unwritten: set[str] = set()  # kinds of results that were reported as not written
        self._setbacks = Setbacks()
        self._furthest: Checkpoint | None = None  # the last finite state, since the last progress
        self._beginning: Checkpoint | None = None  # the initial state of a session that has no checkpoint yet
        self._vitals: list[health.Vitals] = []
        self._psnrs: list[float] = []
        self._told: set[str] = set()

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint to which the trainer was restored."""
        self._setbacks = setbacks.restored(state)
        self.trainer.guard.bad_in_a_row = self._setbacks.in_a_row
        self.trainer.rate_factor = self._setbacks.rate_factor
        if self._setbacks.total:
            times = "once" if self._setbacks.total == 1 else f"{self._setbacks.total} times"
            self.log.info(
                f"the training has returned to an earlier state {times}: it continues with {self._rate_words()}"
            )

    def begin(self) -> None:
        """Keep the initial state: the training may diverge before its first checkpoint."""
        if self.trainer.optimizer.steps == 0:
            self._beginning = self._good_state(self.trainer.finished_steps)

    def state(self) -> dict[str, Any]:
        """The entries of a checkpoint's state that `resume` reads."""
        return replace(self._setbacks, in_a_row=self.trainer.guard.bad_in_a_row).state()

    def after_step(self, taken: int | None = None) -> None:
        """Report the steps skipped since the last call; return to an earlier state after too many in a row.

        `taken`: at the end of the session, its number of steps; the training then also restores an earlier state if all
        of them were skipped. Raises DivergedError if returning did not help, with the trainer at the last finite state.
        """
        skipped = self.trainer.guard.take()
        for bad in skipped:
            self.log.warn(bad.sentence())
        in_vain = taken is not None and not self.has_learnt(taken)
        if skipped and (in_vain or self.trainer.guard.bad_in_a_row >= self.conf.train.max_bad_steps):
            self._recover(skipped[-1])

    def attempt(self, what: str, write: Callable[[], Result]) -> Result | None:
        """Write an optional result; on failure the training continues, and each kind is reported once."""
        try:
            return write()
        except (UserError, OSError, MemoryError, RuntimeError) as error:
            if is_allocation_failure(error):
                memory.let_go(error)
            elif isinstance(error, RuntimeError):
                raise
            if what not in self._unwritten:
                self._unwritten.add(what)
                step = self.trainer.finished_steps
                self.log.warn(f"step {step}: {what} could not be written; the training continues: {error}")
        return None

    def kept(self) -> str:
        """A clause for the message if a training can no longer be saved: the newest checkpoint, and how to resume."""
        newest = self.store.last_finite(complain)
        if newest is None:
            return "this run has written no checkpoint yet, run again"
        return f"the checkpoint of step {newest.step} is the newest, run again with --is_continue"

    def has_learnt(self, steps: int) -> bool:
        """Whether any of the `steps` taken was accepted, as far as is known."""
        return self.trainer.guard.bad_steps < steps

    def _recover(self, last: BadStep) -> None:
        """Retry from a finite state with zero moments, a lower learning rate and other random numbers."""
        trainer, before = self.trainer, self._setbacks
        count, seen = trainer.guard.bad_in_a_row, listed(last.findings, MAX_NAMED)
        what = f"{count} {'step was' if count == 1 else 'steps in a row were'} skipped ({seen})"
        good = trainer.finished_steps - count - (not trainer.settle())  # discard the step that was launched meanwhile
        trainer.guard.take()
        if trainer.optimizer.steps >= setbacks.PROGRESS and good >= before.reached + setbacks.PROGRESS:
            before, self._furthest = replace(before, attempts=0), None
        has_weights = not find_in_weights(last.weights)
        if has_weights and (self._furthest is None or self._furthest.step <= good) and self._is_usable():
            self._furthest = self._good_state(good)
        if before.attempts >= setbacks.MOST_ATTEMPTS:
            self._give_up(what, good)
        stays = before.attempts == 0 and has_weights and last.is_of_the_update and _are_small(last.weights)
        checkpoint = None if stays else self._earlier(before, good)
        if checkpoint is None and not has_weights:
            raise DivergedError(f"{what}, and there is no checkpoint with finite weights to return to")
        if checkpoint is None:
            trainer.rewind_to(good)
        else:
            trainer.restore(checkpoint)
        attempts, reached = before.attempts + 1, max(good, before.reached)
        self._setbacks = Setbacks(before.total + 1, attempts, reached, trainer.finished_steps)
        self._start_afresh()
        where = "staying at" if checkpoint is None else "returning to"
        self.log.warn(
            f"{what}: {where} the weights of step {trainer.finished_steps}, with other random numbers, zero "
            f"Adam moments and {self._rate_words()} (attempt {attempts} of {setbacks.MOST_ATTEMPTS})"
        )

    def _earlier(self, before: Setbacks, good: int) -> Checkpoint | None:
        """The newest finite checkpoint; after the first attempt an older one, if there is one.

        Without checkpoints: the initial state, if it is earlier than `good`.
        """
        found = self.store.last_finite(complain, before.target) if before.attempts else None
        found = found or self.store.last_finite(complain)
        if found is None and self._beginning is not None and self._beginning.step < good:
            found = self._beginning
        return found

    def _start_afresh(self) -> None:
        """Reset moments, learning rate and random numbers at the current step."""
        self.trainer.optimizer.reset_moments()
        self.trainer.rate_factor = self._setbacks.rate_factor
        self.trainer.reseed(self.conf.train.seed, self.trainer.finished_steps, self._setbacks.total)

    def _good_state(self, step: int) -> Checkpoint:
        """A checkpoint of the current weights, with the step number `step` and zero moments."""
        state = self.trainer.checkpoint({})
        zeros = {
            moment: {name: np.zeros_like(values) for name, values in named.items()}
            for moment, named in state.moments.items()
        }
        return replace(state, step=step, moments=zeros, adam_steps=0)

    def _is_usable(self) -> bool:
        """Whether the weights are usable: the surface field is finite."""
        surface = self.trainer.model.level_set
        return surface is None or bool(np.isfinite(surface.outward(health.probe_points())).all())

    def _give_up(self, seen: str, good: int) -> NoReturn:
        """Restore the last finite state and raise DivergedError."""
        if self._furthest is not None:
            self.trainer.restore(self._furthest)
        else:
            self.trainer.rewind_to(good)
        tried = (
            f"{setbacks.MOST_ATTEMPTS} restarts from finite states failed in the same way, the last one with "
            f"{self._rate_words()}"
        )
        self._setbacks = Setbacks(self._setbacks.total + 1)
        self._start_afresh()
        raise DivergedError(f"{seen}; {tried}")

    def lower_rate(self, reached: int) -> str:
        """Lower the learning rate and reseed after the return from step `reached`; returns a clause for the message."""
        before, trainer = self._setbacks, self.trainer
        self._setbacks = replace(
            before, total=before.total + 1, reached=max(reached, before.reached), target=trainer.finished_steps
        )
        trainer.rate_factor = self._setbacks.rate_factor
        trainer.reseed(self.conf.train.seed, trainer.finished_steps, self._setbacks.total)
        return f"with {self._rate_words()}"

    def _rate_words(self) -> str:
        """The learning rate, as part of a sentence."""
        return f"{self._setbacks.rate_factor:.3g} times the learning rate of the conf"

    def note_psnr(self, value: float) -> None:
        """Record a logged PSNR in dB."""
        self._psnrs.append(value)

    def examine(self) -> None:
        """Check the health at a validation. Each kind of problem is reported once until it disappears."""
        model = self.trainer.model
        surface = model.level_set
        if surface is None:
            return
        values = surface.outward(health.probe_points())
        if not np.isfinite(values).all():
            return  # the guard reports it
        step, inv_s = self.trainer.finished_steps, model.sharpness()
        self._vitals.append(health.vitals(step, inv_s, values, surface, self._psnrs))
        self._psnrs = []
        del self._vitals[: -health.HISTORY]
        found = health.findings(self._vitals)
        for kind in found.keys() - self._told:
            self.log.warn(found[kind])
        self._told = set(found)


def _are_small(weights: dict[str, np.ndarray]) -> bool:
    """Whether no weight is larger than training can produce."""
    return all(np.abs(values).max(initial=0.0) < LARGEST_WEIGHT for values in weights.values())
