"""Compile all operations of a computation at once, one on each core.

Jittor compiles what a synchronisation needs, so that an iteration with several of them takes several rounds. Here its
graph is built without running it, and each operation that is not compiled yet is compiled by a process of its own, into
Jittor's cache, from which this process loads it when it runs. No thread compiles: Jittor's own ones call Python without
its lock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.machine.available import available_bytes
from models.machine.backend import jt
from models.ops import source
from models.ops.source import Source
from models.structs import Var

COMPILER_BYTES = 1 << 30  # of a compiler


@dataclass(frozen=True)
class Together:
    """Whether operations are compiled elsewhere from now on, and the pipes for that."""

    begins: int
    take: int = 0
    give: int = 0
    processes: int = 0


SOURCE = Source.of("together.h", Together)


def compile_together(
    build: Callable[[], Sequence[Var]], progress: Callable[[Sequence[int]], Iterable[int]] = iter
) -> int:
    """Compile what the Vars need that `build` returns; returns the number of operations. `progress` shows it.

    `build` runs with synchronisations that only mark where operations cannot be fused; values that it reads are
    computed. Does nothing if this process has written no source into Jittor's cache: an earlier one has compiled them.
    """
    before = source.written()
    with _postponed():
        wanted = build()
    if source.written() == before:
        return 0
    pipes = [*os.pipe(), *os.pipe()]
    take, give, process_ids, processes = pipes
    os.write(give, bytes(max(1, min(len(os.sched_getaffinity(0)), available_bytes() // COMPILER_BYTES))))
    try:
        _run(Together(1, take, give, processes))
        with contextlib.suppress(RuntimeError), _silent(), jt.flag_scope(use_parallel_op_compiler=1):  # in this thread
            jt.sync([*wanted])
        os.close(processes)
        started = np.frombuffer(_all_of(process_ids), np.int32).tolist()
        for process in progress(started):
            os.waitpid(process, 0)
    finally:
        _run(Together(0))
        for pipe in pipes:
            with contextlib.suppress(OSError):
                os.close(pipe)
    return len(started)


def _run(layout: Together) -> None:
    # Not weakly, which would also run what was built.
    jt.sync(SOURCE.call("together", layout, [((1,), "int32")], [jt.zeros(1, "int32")]), False, False)


def _all_of(pipe: int) -> bytes:
    os.set_blocking(pipe, False)
    parts = []
    with contextlib.suppress(BlockingIOError):  # the processes have the other end, too
        while part := os.read(pipe, 1 << 16):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def _postponed() -> Iterator[None]:
    """Within the context a synchronisation runs nothing."""
    sync = jt.sync
    jt.sync = lambda values, *_: [value.stop_fuse() for value in values]
    try:
        yield
    finally:
        jt.sync = sync


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without the report that Jittor writes for an operation that throws."""
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nothing)
