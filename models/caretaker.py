"""What a training does about trouble: refused steps are kept and counted, a lost run goes back, collapse is told."""

from __future__ import annotations

import numpy as np

from models.config import to_hocon
from models.experiment import Experiment
from models.interrupts import DivergedError
from models.training import health
from models.training.anomaly import save_anomaly
from models.training.checkpoint import last_finite_checkpoint
from models.training.guard import BadStep, listed
from models.training.logger import RunLogger, complain
from models.training.trainer import Trainer

MAX_ANOMALIES = 20  # files per run: one holds all weights, and the first ones tell the most


class Caretaker:
    """Looks after one training; remembers how often it had to."""

    def __init__(self, experiment: Experiment, trainer: Trainer, log: RunLogger) -> None:
        self.experiment = experiment
        self.trainer = trainer
        self.log = log
        self._written = 0
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
        if self.trainer.guard.bad_in_a_row >= self.experiment.conf.train.max_bad_steps:
            self._go_back(refused[-1])

    def _save(self, bad: BadStep) -> None:
        """Write a refused step, as long as there are few."""
        where = ""
        if self._written < MAX_ANOMALIES:
            self._written += 1
            folder = self.experiment.folder / "anomalies"
            conf = to_hocon(self.experiment.conf)
            where = f"; --mode replay --replay {save_anomaly(folder, bad, conf, self.trainer.random_states())}"
        self.log.warn(bad.sentence() + where)

    def _go_back(self, last: BadStep) -> None:
        """To the newest checkpoint with finite numbers, with other random numbers from there on."""
        count, seen = self.trainer.guard.bad_in_a_row, listed(last.findings)
        checkpoint = last_finite_checkpoint(self.experiment.checkpoints, complain)
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
        self.trainer.reseed(self.experiment.conf.train.seed, checkpoint.step, self.trainer.guard.bad_steps)
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
