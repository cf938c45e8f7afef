"""A training as a run: its batches shared by ranks, of which rank 0 leads and the others take its steps from its state;
its checkpoints, at its frequencies, at its end, and where it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.errors import UserError, is_allocation_failure
from models.checkpoints.folder import CheckpointFolder
from models.checkpoints.ours import not_finite
from models.machine import memory
from models.machine.cuda.choice import GpuFailedError, last_words
from models.machine.ranks import Ranks
from models.methods.protocol import Batch
from models.runs.logger import RunLogger
from models.runs.stops import STOPPED_KEY
from models.structs import Noise
from models.training.checkpoint import Checkpoint, CheckpointError, DivergedError
from models.training.gradient import BatchGradient, Sum
from models.training.trainer import Trainer
from models.training.watch import Watch

LOOK = "--mode inspect checks photographs and cameras"


class SavedTraining(Watch):
    """Watches and saves one training."""

    _store: CheckpointFolder
    _log: RunLogger

    def __init__(
        self,
        trainer: Trainer,
        store: CheckpointFolder,
        log: RunLogger,
        state: Callable[[], dict[str, Any]],
        resumed: Checkpoint | None,
    ) -> None:
        """`state` returns the experiment's entries of a checkpoint; `resumed`: to which the trainer was restored."""
        before = {} if resumed is None else resumed.state
        super().__init__(trainer, store, log, before)
        self._state, self.stopped = state, str(before.get(STOPPED_KEY, ""))

    def save(self, stopped: str = "") -> Path | None:
        """Write a checkpoint of this step, unless its weights are not finite; old checkpoints beyond the limit are
        removed.

        `stopped`: why the training is stopped. Raises CheckpointError if the file cannot be written.
        """
        self._trainer.finish_step()
        record = replace(self.record, skipped=self._trainer.guard.bad_in_a_row)
        state = self._state() | record.state() | ({STOPPED_KEY: stopped} if stopped else {})
        checkpoint = self._trainer.checkpoint(state)
        if name := not_finite(checkpoint):
            self._log.warn(f"step {checkpoint.step}: no checkpoint is written because {name} is not finite")
            return None
        return self._store.save(checkpoint)

    def save_progress(self, frequency: int) -> None:
        """Write a checkpoint during training, unless the last step was skipped or led to an earlier state.

        If the file cannot be written, the next attempt is `frequency` steps later: stopping would lose more steps.
        """
        self._trainer.finish_step()
        if self._trainer.guard.bad_in_a_row > 0 or self._trainer.optimizer.steps == 0:
            return
        try:
            self.save()
        except CheckpointError as error:
            self._log.warn(f"{error} The training continues and writes the next checkpoint in {frequency} steps")

    def ended_by(self, error: Exception, report: Path) -> Exception | None:
        """The error with which a training ends: after a divergence or without memory it is saved first; data on a GPU
        that failed cannot be saved. None for an error of another kind.
        """
        step = self._trainer.finished_steps
        if isinstance(error, DivergedError):
            text = self._after_divergence(str(error), report)
            self._log.keep(f"the training stopped at step {step} of {self._trainer.conf.end_iter}: {text}")
            return DivergedError(text)
        if is_allocation_failure(error):
            memory.release_after_failure(error)
            saved = "no step was completed"
            if self._trainer.guard.has_taken:
                self.save()
                saved = "its checkpoint is written, continue with --is_continue"
            return UserError(
                f"memory ran out after step {step}; {saved}: end other programs, or lower train.ray_chunk, "
                "train.memory_limit or train.batch_size"
            )
        words = last_words(error)
        return GpuFailedError(words, self._newest_words()) if words else None

    def _after_divergence(self, reason: str, report: Path) -> str:
        """Save the last finite state, which the trainer has; returns the sentence with the files and the advice."""
        step = self._trainer.finished_steps
        path, why = None, "no step of this session had finite values, so no checkpoint is written"
        if self._trainer.guard.has_taken:
            try:
                path, why = self.save(reason), "no checkpoint is written because its weights are not finite"
            except CheckpointError as error:
                why = str(error)
        if path is None:
            return f"{reason}; {why}: {LOOK}; {self._newest_words()}"
        return (
            f"{reason}; the state of step {step} is saved in {path}, the report is {report}: {LOOK}, --is_continue "
            "resumes from there with the lower learning rate"
        )

    def _newest_words(self) -> str:
        """A clause for the message if a training can no longer be saved: the newest checkpoint, and how to resume."""
        newest = self._store.last_finite(self._log.warn)
        if newest is None:
            return "this run has written no checkpoint yet, run again"
        return f"the checkpoint of step {newest.step} is the newest, run again with --is_continue"


class SharedTrainer(Trainer):
    """Differentiates this rank's part of each batch."""

    def __init__(self, ranks: Ranks, *arguments: Any) -> None:
        """`arguments` are those of `Trainer`."""
        super().__init__(*arguments)
        self.ranks, self.parts = ranks, ranks.size
        self._is_known = False  # whether the other ranks have this state

    def step(self) -> BatchGradient:
        """See `Trainer`; a signal while ranks wait for each other undoes the drawing of the batch."""
        self.ranks.lead(self._state_for_others)
        with self.ranks.undoing(self._batch_undo):
            return super().step()

    def own_part(self, batch: Batch, noise: Noise | None) -> tuple[Batch, Noise | None, Sum | None]:
        """See `Trainer`."""
        return self.ranks.share(batch, noise)

    def follow(self) -> None:
        """Take the steps that rank 0 takes, from its state."""
        for state in self.ranks.orders():
            if state is not None:
                checkpoint, self.rate_factor, self.ray_chunk = state
                self.restore(checkpoint)
            self.step()

    def reseed(self, *entropy: int) -> None:
        """See `Trainer`."""
        self._is_known = False
        super().reseed(*entropy)

    def checkpoint(self, state: Mapping[str, Any] | None = None) -> Checkpoint:
        """See `Trainer`; each checkpoint is also the state from which all ranks go on."""
        self._is_known = False
        return super().checkpoint(state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """See `Trainer`."""
        self._is_known = False
        super().restore(checkpoint)

    def _state_for_others(self) -> tuple[Checkpoint, float, int] | None:
        """What `follow` must know before a step; None if the other ranks have it, from the steps before."""
        if self._is_known:
            return None
        state = self.checkpoint(), self.rate_factor, self.ray_chunk
        self._is_known = True
        return state

    def _batch_undo(self) -> Callable[[], None]:
        """A function that undoes the drawing of the next batch."""
        states, buffers = self.random_states(), {name: array.copy() for name, array in self.model.buffers().items()}

        def undo() -> None:
            self.set_random_states(states)
            self.model.load_buffers(buffers)

        return undo
