"""Keeping C libraries off the terminal: libpng and libjpeg write their own complaints to the process's stderr."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

STDERR = 2  # the file descriptor C libraries write to, whatever sys.stderr is


@contextlib.contextmanager
def native_stderr_silenced() -> Iterator[None]:
    """While the body runs, what is written to file descriptor 2 is dropped.

    The descriptor belongs to the whole process: keep the body short. Where it is closed, nothing happens.
    """
    try:
        kept = os.dup(STDERR)
    except OSError:
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, STDERR)
        os.close(sink)
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)
