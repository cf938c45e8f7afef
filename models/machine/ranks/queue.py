"""A work queue for ranks: each free rank takes the next item. Rank 0 distributes the items and also works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from models.machine.ranks.ranks import Ranks

Outcome = TypeVar("Outcome")
POLL_SECONDS = 0.1


class Queue(Generic[Outcome]):
    """A queue of named items."""

    def __init__(self, ranks: Ranks, names: Sequence[str]) -> None:
        self._ranks, self._left = ranks, list(names)
        self.is_first = ranks.is_first

    def go_through(
        self, work: Callable[[str], Outcome], is_stopped: Callable[[], bool], tell: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """The outcomes in the order of completion: all of them on rank 0, its own ones on another rank.

        Rank 0 passes each outcome to `tell`; it works in a separate thread while it distributes items. After
        `is_stopped` no item is started.
        """
        if self._ranks.size == 1:
            return self._by_itself(work, is_stopped, tell)
        if self.is_first:
            return self._hand_out(work, is_stopped, tell)
        found: list[Outcome] = []
        while not is_stopped():
            self._ranks.send(0, found[-1:])
            name = self._ranks.receive(0)
            if name is None:
                return found
            found.append(work(name))
        return found

    def _by_itself(
        self, work: Callable[[str], Outcome], is_stopped: Callable[[], bool], tell: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """Process all items in this process."""
        found = []
        while self._left and not is_stopped():
            found.append(work(self._left.pop(0)))
            tell(found[-1])
        return found

    def _hand_out(
        self, work: Callable[[str], Outcome], is_stopped: Callable[[], bool], tell: Callable[[Outcome], None]
    ) -> list[Outcome]:
        """Work in a thread and answer the requests of other ranks."""
        found: list[Outcome] = []
        reported = 0
        own: threading.Thread | None = None
        working = set(range(1, self._ranks.size))
        while own is not None or ((working or self._left) and not is_stopped()):
            if own is not None and not own.is_alive():
                own = None
            if own is None and self._left and not is_stopped():
                own = threading.Thread(target=_do, args=(work, self._left.pop(0), found))
                own.start()
            for rank in sorted(working) if not is_stopped() else ():
                if self._ranks.has_sent(rank):
                    found += self._ranks.receive(rank)
                    name = self._left.pop(0) if self._left and not is_stopped() else None
                    self._ranks.send(rank, name)
                    working -= {rank} if name is None else set()
            for outcome in found[reported:]:
                tell(outcome)
                reported += 1
            time.sleep(POLL_SECONDS)
        return found


def _do(work: Callable[[str], Outcome], name: str, found: list[Outcome]) -> None:
    """Process one item; the target of the thread."""
    found.append(work(name))
