"""Early ends of a training because of memory or a failed GPU: save, and report in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from data.errors import UserError, is_allocation_failure, is_compiler_failure
from models.machine import memory
from models.machine.cuda.failure import GpuFailedError, last_words
from models.monitoring.interrupts import Interrupts


@dataclass(frozen=True)
class Ending:
    """Callbacks for the end of a training."""

    step: Callable[[], int]  # returns the last finished step
    save: Callable[[], str]  # writes a checkpoint; returns a clause for the message


@contextmanager
def saved_at_an_early_end(interrupts: Interrupts, ending: Ending) -> Iterator[None]:
    """The next two context managers together; raises what they raise."""
    with saved_at_the_end_of_memory(ending), ended_with_a_compiler(interrupts):
        yield


@contextmanager
def ended_with_a_compiler(interrupts: Interrupts) -> Iterator[None]:
    """Context manager: after a signal, the failure of a compiler is no error: a terminal sends Ctrl-C to it, too."""
    try:
        yield
    except RuntimeError as error:
        if interrupts.received is None or not is_compiler_failure(error):
            raise
        memory.let_go(error)


@contextmanager
def saved_at_the_end_of_memory(ending: Ending) -> Iterator[None]:
    """Context manager: if memory runs out in its block, save the training and raise UserError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_allocation_failure(error):
            raise
        memory.let_go(error)
        saved = ending.save()
        raise UserError(
            f"memory ran out after step {ending.step()}; {saved}: end other programs, or lower "
            "train.ray_chunk, train.memory_limit or train.batch_size"
        ) from error


@contextmanager
def named_if_the_gpu_fails(kept: Callable[[], str]) -> Iterator[None]:
    """Context manager: raises GpuFailedError, which names what is `kept` on disk, if the GPU fails in its block.

    Data on a failed GPU cannot be saved.
    """
    try:
        yield
    except RuntimeError as error:
        if words := last_words(error):
            raise GpuFailedError(words, kept()) from error
        raise
