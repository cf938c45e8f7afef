"""An allocation that fails as arrays are computed, not as they are asked for, and each time anew: as on a card."""

from dataclasses import replace

from models.machine.backend import jt


def without_memory(objective, most):
    """An objective whose numbers cannot be computed for more than `most` entries."""

    def failing(batch, noise, moment, settled):
        found = objective(batch, noise, moment, settled)
        if len(batch) <= most:
            return found
        name, term = next(iter(found.terms.items()))
        return replace(found, terms=found.terms | {name: replace(term, total=term.total + unallocated(term.total))})

    return failing


def unallocated(like):
    """Zero, if it could be computed."""

    def compute(np, data):
        raise RuntimeError("Unable to alloc cuda device memory")

    return jt.numpy_code(like.shape, like.dtype, [like], compute, [compute])
