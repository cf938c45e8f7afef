"""Work done in a process of its own: a library that may abort, print or hold on to memory takes only itself along.

A C++ library such as COLMAP ends the whole process where a check of its own fails, writes its log to the terminal and
brings its own OpenMP runtime. In a child process the first becomes an exception, the second a file, and the third
meets nobody. Stopping the child is also the one way to stop its work at once.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from data.quiet import silence_libraries
from data.streams import secure

POLL_SECONDS = 0.25  # between two looks at how far the child is: often enough for a progress bar
LONGEST_LOG_LINE = 200  # characters of the library's own words in a message


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
    An exception here, KeyboardInterrupt above all, ends the child before it goes on.
    """
    context = multiprocessing.get_context("spawn")  # a forked child would share threads and locks of loaded libraries
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sender, str(log), most_memory, task, arguments), daemon=True)
    process.start()
    sender.close()
    try:
        return _result(receiver, on_event, on_wait)
    except EOFError:
        process.join()
        raise ChildError(_last_words(log, process.exitcode)) from None
    finally:
        process.kill()
        process.join()
        receiver.close()


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
        on_event(value)


def _serve(
    sender: Connection, log: str, most_memory: int | None, task: Callable[..., Any], arguments: tuple[object, ...]
) -> None:
    """The child's side."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its child itself
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    secure()  # a full disk ends the log, not the work
    silence_libraries()
    if most_memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (most_memory, most_memory))
    try:
        sender.send(("result", task(lambda event: sender.send(("event", event)), *arguments)))
    except Exception as error:  # noqa: BLE001 (whatever it was, the parent hears of it)
        sender.send(("error", _one_line(f"{error}") or type(error).__name__))


def _leave_with_parent() -> None:
    """A parent that was killed leaves no child at work."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _last_words(log: Path, status: int | None) -> str:
    """Why the process ended, as far as the end of its log and its exit status tell."""
    ended = f"its process ended with status {status}"
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ended
    fatal = [line for line in lines if line.startswith(("F", "E")) and "]" in line]  # glog: Fatal, Error
    return f"{ended}: {_one_line(fatal[-1].partition(']')[2])}" if fatal else ended


def _one_line(text: str) -> str:
    """The text without line breaks; of a check in a library's source, where it stands instead of its C++."""
    check = re.match(r"\[(\S+:\d+)\] Check failed", text)
    return f"the check at {check[1]} fails" if check else " ".join(text.split())[:LONGEST_LOG_LINE]
