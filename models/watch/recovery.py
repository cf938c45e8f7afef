"""What a training does about trouble: refused steps are kept and counted, a lost run goes back, collapse is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from data.errors import UserError, is_allocation_failure, listed
from models.checkpoints.folder import CheckpointFolder
from models.kinds.conf import ExperimentConfig, to_hocon
from models.machine import memory
from models.machine.ranks.ranks import ALONE, Ranks
from models.training.guard import MAX_NAMED, BadStep
from models.training.trainer import Trainer
from models.watch import collapse as health
from models.watch.anomaly import save_anomaly
from models.watch.interrupts import DivergedError
from models.watch.logger import RunLogger, complain

MAX_ANOMALIES = 20  # files per run: one holds all weights, and the first ones tell the most

Result = TypeVar("Result")


class Recovery:
    """Looks after one training; remembers how often it had to."""

    def __init__(
        self,
        conf: ExperimentConfig,
        store: CheckpointFolder,
        subfolder: Callable[[str], Path],
        trainer: Trainer,
        log: RunLogger,
        ranks: Ranks = ALONE,
    ) -> None:
        """`subfolder` makes a folder of the experiment; raises UserError where it cannot.

        `ranks` look after the same training; the first one has the folder and its checkpoints.
        """
        self.conf = conf
        self.store = store
        self._subfolder = subfolder
        self.trainer = trainer
        self.log = log
        self.ranks = ranks
        self._written = 0
        self._seen = ""  # what was not finite in the last refused step
        self._unwritten: set[str] = set()  # kinds of results that were told not to be written
        self._went_back_to: int | None = None
        self._vitals: list[health.Vitals] = []
        self._psnrs: list[float] = []
        self._told: set[str] = set()

    def after_step(self) -> None:
        """Save and tell the steps refused since the last call; goes back, or gives up, where there are too many.

        Raises DivergedError where no checkpoint is left to go back to, or going back did not help.
        """
        refused = self.trainer.guard.take()
        for bad in refused:
            self._save(bad)
        if self.trainer.guard.bad_in_a_row >= self.conf.train.max_bad_steps:
            self._go_back(refused[-1])

    def _save(self, bad: BadStep) -> None:
        """Write a refused step, as long as there are few."""
        where = ""
        if self._written < MAX_ANOMALIES and self.ranks.is_first:
            self._written += 1
            if path := self.attempt("refused steps", lambda: self._write(bad)):
                where = f"; --mode replay --replay {path}"
        self._seen = listed(bad.findings, MAX_NAMED)
        self.log.warn(bad.sentence() + where)

    def _write(self, bad: BadStep) -> Path:
        """A refused step as a file."""
        conf, folder = to_hocon(self.conf), self._subfolder("anomalies")
        return save_anomaly(folder, bad, conf, self.trainer.random_states())

    def attempt(self, what: str, write: Callable[[], Result]) -> Result | None:
        """Write what the training can do without; where that fails it goes on, and each kind is told once."""
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
                self.log.warn(f"step {step}: {what} cannot be written, the training goes on without: {error}")
        return None

    def kept(self) -> str:
        """What a training that cannot save any more leaves, as half a sentence with what to do."""
        if not self.ranks.is_first:
            return "run again with --is_continue"
        newest = self.store.last_finite(complain)
        if newest is None:
            return "no checkpoint of this run was written yet, run again"
        return f"the checkpoint of step {newest.step} is the newest, run again with --is_continue"

    def has_learnt(self, steps: int) -> bool:
        """Whether any of the `steps` taken was accepted, as far as is known."""
        return self.trainer.guard.bad_steps < steps

    def nothing_learnt(self, steps: int) -> DivergedError:
        """What a run is told that had every one of its `steps` refused."""
        return DivergedError(
            f"none of the {steps} steps taken was finite ({self._seen}), so that nothing was learnt and no checkpoint "
            "is written: lower train.learning_rate or look at anomalies/ with --mode replay"
        )

    def _go_back(self, last: BadStep) -> None:
        """To the newest checkpoint with finite numbers, with other random numbers from there on."""
        count, seen = self.trainer.guard.bad_in_a_row, listed(last.findings, MAX_NAMED)
        checkpoint = self.ranks.broadcast(self.store.last_finite(complain) if self.ranks.is_first else None)
        if checkpoint is None:
            raise DivergedError(
                f"{count} steps in a row were not finite ({seen}) and there is no checkpoint to go back to: lower "
                "train.learning_rate or look at anomalies/ with --mode replay"
            )
        if checkpoint.step == self._went_back_to:
            raise DivergedError(
                f"{count} steps in a row were not finite ({seen}), once more after going back to the checkpoint of "
                f"step {checkpoint.step}: lower train.learning_rate or look at anomalies/ with --mode replay"
            )
        self._went_back_to = checkpoint.step
        self.trainer.restore(checkpoint)
        self.trainer.reseed(self.conf.train.seed, checkpoint.step, self.trainer.guard.bad_steps)
        self.log.warn(
            f"{count} steps in a row were not finite ({seen}): going back to the checkpoint of step "
            f"{checkpoint.step}, with other random numbers"
        )

    def note_psnr(self, value: float) -> None:
        """A PSNR that was reported, in dB."""
        self._psnrs.append(value)

    def examine(self) -> None:
        """At a validation: does the training still work? Each kind of trouble is told once, until it has passed."""
        model = self.trainer.model
        surface = model.level_set
        if surface is None:
            return
        values = surface.outward(health.probe_points())
        if not np.isfinite(values).all():
            return  # the guard's business
        step, inv_s = self.trainer.finished_steps, model.sharpness()
        self._vitals.append(health.vitals(step, inv_s, values, surface, self._psnrs))
        self._psnrs = []
        del self._vitals[: -health.HISTORY]
        found = health.findings(self._vitals)
        for kind in found.keys() - self._told:
            self.log.warn(found[kind])
        self._told = set(found)
