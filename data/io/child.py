"""Work in a child process: a library that aborts, prints or keeps memory harms nothing but that process.

A C++ library such as COLMAP ends the whole process where a check of its own fails, writes its log to the terminal and
brings its own OpenMP runtime. In a child process the first becomes an exception, the second a file, and the third
has none to clash with. Stopping the child is also the one way to stop its work at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from data.errors import LONGEST_REASON, is_allocation_failure
from data.io.files import open_regular
from data.io.quiet import silence_libraries
from data.io.search_path import ROOT, safe_environment, without_current_folder
from data.io.streams import secure

# The child's first words: its search path is the parent's, and nothing is imported before it is. (`multiprocessing`
# would import itself from the current folder.)
START = """
import sys
sys.path[:] = sys.argv[3:4]
import data, models
sys.path[:] = sys.argv[4:]
from data.io.child import serve
serve(int(sys.argv[1]), int(sys.argv[2]))
"""
PR_SET_PDEATHSIG = 1  # prctl(2)
POLL_SECONDS = 0.25  # between two looks at how far the child is: often enough for a progress bar
LAST_BYTES = 65536  # of a log, where the last words are looked for


class ChildError(Exception):
    """The task raised, or its process died; the text says what is known, as part of a sentence."""


def run_apart(
    task: Callable[..., Any],
    *arguments: object,
    log: Path,
    on_event: Callable[[Any], None] = lambda event: None,
    on_wait: Callable[[], None] = lambda: None,
    most_memory: int | None = None,
) -> Any:
    """What `task(report, *arguments)` returns, computed in a child process; everything has to be picklable.

    Args:
        log: what the child writes to stdout and stderr is appended to this file.
        on_event: called here with each value that the task hands to `report`.
        on_wait: called here every POLL_SECONDS while nothing is reported.
        most_memory: bytes of address space the child may have; None for no limit of its own.
    Raises:
        ChildError: the task raised an exception, or the process ended without a result.
        MemoryError: the task had none left, or its process ended where the user limits the memory of this one.
    An exception here, KeyboardInterrupt above all, ends the child before it goes on.
    """
    ours, theirs = Pipe()
    with _started(theirs, log) as process, ours:
        try:
            ours.send((most_memory, task, arguments))
            return _result(ours, on_event, on_wait)
        except (EOFError, ConnectionError):
            words = _last_words(log, process.wait())
            if _is_limited():  # C++ ends the process where it has no memory left
                raise MemoryError(words) from None
            raise ChildError(words) from None


@contextlib.contextmanager
def _started(theirs: Connection, log: Path) -> Iterator[subprocess.Popen]:
    """The child's process, which ends with the block; its end of the pipe is closed here."""
    places = [ROOT, *without_current_folder(sys.path)]
    command = [sys.executable, "-P", "-c", START, str(theirs.fileno()), str(os.getpid()), *places]
    with theirs, open(open_regular(log, os.O_WRONLY | os.O_APPEND), "wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=safe_environment(),
            pass_fds=[theirs.fileno()],
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _result(receiver: Connection, on_event: Callable[[Any], None], on_wait: Callable[[], None]) -> Any:
    """Listen until the task is done; EOFError where its process is gone."""
    while True:
        if not receiver.poll(POLL_SECONDS):
            on_wait()
            continue
        kind, value = receiver.recv()
        if kind == "result":
            return value
        if kind == "error":
            raise ChildError(value)
        if kind == "memory":
            raise MemoryError(value)
        on_event(value)


def _limit(most: int) -> None:
    """Let this process have no more bytes of address space than that, nor than it may have already."""
    known = [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(most, *known), min(most, *known)) if known else (most, most))


def _is_limited() -> bool:
    """Whether the user limits the addresses or the data of this process, and so those of its children."""
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


def serve(descriptor: int, parent: int) -> None:
    """The child's side: do what comes through the pipe `descriptor`, a process of `parent`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its child itself
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a parent that was killed leaves no child at work
    if os.getppid() != parent:
        return
    secure()  # a full disk ends the log, not the work
    silence_libraries()
    with Connection(descriptor) as pipe:
        try:
            most_memory, task, arguments = pipe.recv()
            if most_memory is not None:
                _limit(most_memory)
            pipe.send(("result", task(lambda event: pipe.send(("event", event)), *arguments)))
        except Exception as error:  # noqa: BLE001 (whatever it was, the parent hears of it)
            kind = "memory" if is_allocation_failure(error) else "error"
            pipe.send((kind, _said(str(error)) or type(error).__name__))


def _last_words(log: Path, status: int | None) -> str:
    """Why the process ended, as far as the end of its log and its exit status tell."""
    ended = f"its process ended with status {status}"
    try:
        lines = _end(log).decode("utf-8", "replace").splitlines()
    except OSError:
        return ended
    fatal = [line for line in lines if line.startswith(("F", "E")) and "]" in line]  # glog: Fatal, Error
    return f"{ended}: {_said(fatal[-1].partition(']')[2])}" if fatal else ended


def _end(log: Path) -> bytes:
    """The last bytes of a file, however long it is."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
        return file.read(LAST_BYTES)


def _said(text: str) -> str:
    """A library's words on one line; of a check in its source, where that stands instead of its C++."""
    check = re.match(r"\[(\S+:\d+)\] Check failed", text)
    return f"the check at {check[1]} fails" if check else " ".join(text.split())[:LONGEST_REASON]
