"""Early ends of a training, for lack of memory, a lost rank or a failed card: saves, and says in one sentence what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from data.errors import UserError, is_allocation_failure
from models.machine import memory
from models.machine.cuda.failure import CardFailedError, last_words
from models.machine.ranks.ranks import AbandonedError, RankFailedError, Ranks
from models.monitoring.interrupts import Interrupts


@dataclass(frozen=True)
class Ending:
    """What a training says and does as it ends."""

    step: Callable[[], int]  # the last one that was finished
    save: Callable[[], str]  # returns what became of it, as half a sentence; "" where another rank saves


@contextmanager
def saved_at_the_end_of_memory(ending: Ending) -> Iterator[None]:
    """Where memory runs out all the same, what was trained is saved and UserError raised."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_allocation_failure(error):
            raise
        memory.let_go(error)
        saved = ending.save()
        raise UserError(
            f"memory ran out after step {ending.step()}{f'; {saved}' if saved else ''}: end other programs, or lower "
            "train.ray_chunk, train.memory_limit or train.batch_size"
        ) from error


@contextmanager
def saved_at_the_end_of_ranks(ranks: Ranks, interrupts: Interrupts, ending: Ending) -> Iterator[None]:
    """Signals end the waiting for other ranks, and with it what is within; the failure of another rank ends all.

    Raises RankFailedError for that, with everything saved.
    """
    ranks.stopping = lambda: interrupts.received is not None
    try:
        yield
    except AbandonedError:
        return
    except RankFailedError as error:
        told = f"{error}; all ranks ended after step {ending.step()}: {ending.save()}"
        raise RankFailedError(told, error.status) from error
    finally:
        del ranks.stopping


@contextmanager
def told_where_the_card_fails(kept: Callable[[], str]) -> Iterator[None]:
    """Where the card fails nothing of it can be saved any more: CardFailedError with what is `kept`."""
    try:
        yield
    except RuntimeError as error:
        if words := last_words(error):
            raise CardFailedError(words, kept()) from error
        raise
