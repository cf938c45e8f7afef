"""A training whose batches are shared by ranks: rank 0 leads, and the others take its steps from its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from models.machine.ranks import Ranks
from models.methods.protocol import Batch
from models.structs import Noise
from models.training.checkpoint import Checkpoint
from models.training.gradient import BatchGradient, Sum
from models.training.trainer import Trainer


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
