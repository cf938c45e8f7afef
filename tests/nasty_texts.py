"""Texts that forge a line or control a terminal, and streams that reject output."""

from __future__ import annotations

import errno
import io
import os
import resource
import sys
from collections.abc import Callable

FORGED = "2026-01-01T00:00:00+00:00 INFO trained to step 9"
# Each breaks a line, or steers a terminal, somewhere: C0, C1, Unicode's separators, bidirectional and invisible
# characters, and what stands for a byte of a file name that is no UTF-8.
BREAKING = {
    "newline": "\n",
    "carriage return": "\r",
    "vertical tab": "\v",
    "form feed": "\f",
    "file separator": "\x1c",
    "group separator": "\x1d",
    "record separator": "\x1e",
    "next line": "\x85",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "escape": "\x1b[2J",
    "C1 escape": "\x9b2J",
    "C1 command": "\x9d0;title\x9c",
    "bell": "\a",
    "backspace": "\b\b\b",
    "delete": "\x7f",
    "tab": "\t",
    "zero": "\0",
    "right to left": "\u202e",
    "isolate": "\u2066",
    "zero width": "\u200b",
    "tag": "\U000e0041",
    "undecodable byte": "\udc9b",
    "lone surrogate": "\ud800",
}


class Broken(io.StringIO):
    """A stream that rejects all output."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        raise self._error

    def flush(self) -> None:
        raise self._error


def broken_streams() -> dict[str, io.TextIOBase | None]:
    """Name -> a stream that is gone, each in another way."""
    closed = io.StringIO()
    closed.close()
    return {
        "missing": None,
        "closed": closed,
        "full": Broken(OSError(errno.ENOSPC, "No space left on device")),
        "nobody reads": Broken(BrokenPipeError(errno.EPIPE, "Broken pipe")),
        "hung up": Broken(OSError(errno.EIO, "Input/output error")),
        "would wait": Broken(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")),
        "not for writing": Broken(io.UnsupportedOperation("not writable")),
        "refuses the encoding": Broken(UnicodeEncodeError("ascii", "\xe9", 0, 1, "refused")),
    }


FULL_LOG = 2000  # bytes


def prints_much_into_a_full_log(report: Callable[[object], None]) -> int:
    """A task for a child whose library prints more than the disk takes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_LOG, FULL_LOG))
    for _ in range(1000):
        print("a library speaks")
        sys.stderr.write("and complains\n")
    report("half")
    return 3


def dies(report: Callable[[object], None]) -> None:
    """A task for a child that does not come back."""
    os._exit(7)
