"""Runs a task in a child process, for libraries that abort, print or keep memory.

A C++ library such as COLMAP ends the process if one of its checks fails, logs to the terminal and brings its own OpenMP
runtime. In a child process an abort becomes an exception, the log goes to a file, and OpenMP runtimes do not conflict.
Killing the child also stops the work immediately.
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
from data.io.files import open_input, open_regular
from data.io.search_path import ROOT, safe_environment, without_current_folder
from data.io.streams import secure, silence_libraries

# The child's program. It sets the parent's search path before it imports anything. (`multiprocessing` would import
# itself from the current folder.)
CHILD_PROGRAM = """
import sys
sys.path[:] = sys.argv[3:4]
import data, models
sys.path[:] = sys.argv[4:]
from data.io.child import serve
serve(int(sys.argv[1]), int(sys.argv[2]))
"""
PR_SET_PDEATHSIG = 1  # prctl(2)
CHILD_POLL_SECONDS = 0.25  # between progress updates
LAST_BYTES = 65536  # of a log, which are searched for the reason of a failure


class ChildError(Exception):
    """The task raised an exception, or its process ended; the text is a clause that says why."""


def run_apart(
    task: Callable[..., Any],
    *arguments: object,
    log: Path,
    on_event: Callable[[Any], None] = lambda event: None,
    on_wait: Callable[[], None] = lambda: None,
    most_memory: int | None = None,
) -> Any:
    """The result of `task(report, *arguments)`, computed in a child process; all values must be picklable.

    Args:
        log: stdout and stderr of the child are appended to this file.
        on_event: called in this process with each value that the task passes to `report`.
        on_wait: called in this process every CHILD_POLL_SECONDS while nothing is reported.
        most_memory: limit on the child's address space in bytes; None: no additional limit.
    Raises:
        ChildError: the task raised an exception, or the process ended without a result.
        MemoryError: memory ran out in the task, or its process ended while ulimit restricts memory.
    An exception in this process, such as KeyboardInterrupt, kills the child.
    """
    ours, theirs = Pipe()
    with _started(theirs, log) as process, ours:
        try:
            ours.send((most_memory, task, arguments))
            return _result(ours, on_event, on_wait)
        except (EOFError, ConnectionError):
            reason = _failure_reason(log, process.wait())
            limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
            if any(limit != resource.RLIM_INFINITY for limit in limits):  # C++ ends the process when memory runs out
                raise MemoryError(reason) from None
            raise ChildError(reason) from None


@contextlib.contextmanager
def _started(theirs: Connection, log: Path) -> Iterator[subprocess.Popen]:
    """The child process, killed at the end of the block; its end of the pipe is closed in this process."""
    places = [ROOT, *without_current_folder(sys.path)]
    command = [sys.executable, "-P", "-c", CHILD_PROGRAM, str(theirs.fileno()), str(os.getpid()), *places]
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
    """Wait for the result; raises EOFError if the process ended."""
    while True:
        if not receiver.poll(CHILD_POLL_SECONDS):
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


def serve(descriptor: int, parent: int) -> None:
    """The child's side: run the task received through the pipe `descriptor` from the process `parent`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent kills its child itself
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the child ends with a parent that was killed
    if os.getppid() != parent:
        return
    secure()  # a full disk must not end the work
    silence_libraries()
    with Connection(descriptor) as pipe:
        try:
            most_memory, task, arguments = pipe.recv()
            if most_memory is not None:  # an existing limit is not raised
                known = [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit != resource.RLIM_INFINITY]
                limit = min([most_memory, *known])
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            pipe.send(("result", task(lambda event: pipe.send(("event", event)), *arguments)))
        except Exception as error:  # noqa: BLE001 (every exception is reported to the parent)
            kind = "memory" if is_allocation_failure(error) else "error"
            pipe.send((kind, _summary(str(error)) or type(error).__name__))


def _failure_reason(log: Path, status: int | None) -> str:
    """Why the process ended, from its exit status and the last fatal line of its log."""
    ended = f"its process ended with status {status}"
    try:
        with open_input(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            lines = file.read(LAST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ended
    fatal = [line for line in lines if line.startswith(("F", "E")) and "]" in line]  # glog: Fatal, Error
    return f"{ended}: {_summary(fatal[-1].partition(']')[2])}" if fatal else ended


def _summary(text: str) -> str:
    """A library's message on one line; for a failed check in its source, only its location."""
    check = re.match(r"\[(\S+:\d+)\] Check failed", text)
    return f"the check at {check[1]} fails" if check else " ".join(text.split())[:LONGEST_REASON]
