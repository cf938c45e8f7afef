"""One preparation at a time in a scene folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from data.io.files import missing_folders, remove_empty
from data.io.lock import FileLock

LOCK_NAME = ".prepare.lock"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """While the body runs, `folder` is there and nobody else has it; raises UserError where another process does.

    Afterwards the lock's file goes, and with it the folders that were made for it, where nothing has come into them.
    Raises OSError where the folder cannot be made or written to.
    """
    made = missing_folders(folder)
    rest = f"is at work in {folder.parent}: wait for it, stop it, or choose another --case"
    try:
        lock = FileLock(folder / LOCK_NAME, "another --mode prepare", rest)
        try:
            yield
        finally:
            lock.remove()
    finally:
        remove_empty(made)
