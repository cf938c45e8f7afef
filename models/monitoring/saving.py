"""Write checkpoints during a training, at its end, and at an early end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.checkpoints.folder import CheckpointFolder
from models.checkpoints.ours import CheckpointError, not_finite
from models.monitoring.logger import RunLogger
from models.monitoring.recovery import Recovery
from models.monitoring.setbacks import STOPPED_KEY
from models.training.trainer import Trainer

LOOK = "--mode inspect checks photographs and cameras"


class Saving:
    """Writes the checkpoints of a trainer."""

    def __init__(
        self,
        store: CheckpointFolder,
        trainer: Trainer,
        recovery: Recovery,
        log: RunLogger,
        state: Callable[[], dict[str, Any]],
    ) -> None:
        """`state` returns the experiment's entries of a checkpoint."""
        self._store, self._trainer, self._recovery = store, trainer, recovery
        self._log, self._state = log, state

    def save(self, stopped: str = "") -> Path | None:
        """Write a checkpoint of this step, unless its weights are not finite; old checkpoints beyond the limit are
        removed.

        `stopped`: why the training is stopped. Raises CheckpointError if the file cannot be written.
        """
        self._trainer.settle()
        state = self._state() | self._recovery.state() | ({STOPPED_KEY: stopped} if stopped else {})
        checkpoint = self._trainer.checkpoint(state)
        if name := not_finite(checkpoint):
            self._log.warn(f"step {checkpoint.step}: no checkpoint is written because {name} is not finite")
            return None
        return self._store.save(checkpoint)

    def save_progress(self, frequency: int) -> None:
        """Write a checkpoint during training, unless the last step was skipped or led to an earlier state.

        If the file cannot be written, the next attempt is `frequency` steps later: stopping would lose more steps.
        """
        self._trainer.settle()
        if self._trainer.guard.bad_in_a_row > 0 or self._trainer.optimizer.steps == 0:
            return
        try:
            self.save()
        except CheckpointError as error:
            self._log.warn(f"{error} The training continues and writes the next checkpoint in {frequency} steps")

    def at_an_early_end(self, taken: int) -> str:
        """Save the `taken` steps of a session at an early end; returns a clause for the message."""
        if not taken or not self._recovery.has_learnt(taken):
            return "no step was completed"
        self.save()
        return "its checkpoint is written, continue with --is_continue"

    def after_divergence(self, reason: str, taken: int, report: Path) -> str:
        """Save the last finite state, which the trainer has; returns the sentence with the files and the advice."""
        step = self._trainer.finished_steps
        path, why = None, "no step of this session had finite values, so no checkpoint is written"
        if self._recovery.has_learnt(taken):
            try:
                path, why = self.save(reason), "no checkpoint is written because its weights are not finite"
            except CheckpointError as error:
                why = str(error)
        if path is None:
            return f"{reason}; {why}: {LOOK}; {self._recovery.kept()}"
        return (
            f"{reason}; the state of step {step} is saved in {path}, the report is {report}: {LOOK}, --is_continue "
            "resumes from there with the lower learning rate"
        )
