"""An allocation that fails when arrays are computed, not when they are created, and each time: as on a GPU."""

from dataclasses import replace

from models.machine.backend import jt
from models.training.trainer import Trainer

WORDS = "Unable to alloc cuda device memory"


def without_memory(objective, most, words=WORDS):
    """An objective whose numbers cannot be computed for more than `most` entries, with `words` of another kind too."""

    def failing(batch, noise, moment, settled):
        found = objective(batch, noise, moment, settled)
        if len(batch) <= most:
            return found
        name, term = next(iter(found.terms.items()))
        return replace(
            found, terms=found.terms | {name: replace(term, total=term.total + unallocated(term.total, words))}
        )

    return failing


def unallocated(like, words=WORDS):
    """Zero, if it could be computed."""

    def compute(np, data):
        raise RuntimeError(words)

    return jt.numpy_code(like.shape, like.dtype, [like], compute, [compute])


def fail_after(monkeypatch, steps, words=WORDS):
    """From that step of a training on nothing can be computed."""
    original = Trainer.step

    def failing(self):
        if self.finished_steps == steps:
            self.model.objective = without_memory(self.model.objective, 0, words)
        return original(self)

    monkeypatch.setattr(Trainer, "step", failing)
