"""The lock that allows one preparation at a time in a scene folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from data.io.files import missing_folders, remove_empty
from data.io.lock import FileLock

LOCK_NAME = ".prepare.lock"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Create and lock `folder` while the body runs; raises UserError if another process holds the lock.

    Afterwards the lock file is removed, and the created folders too if they are empty. Raises OSError if the folder
    cannot be created or written.
    """
    made = missing_folders(folder)
    rest = f"is running in {folder.parent}: wait for it, stop it, or choose another --case"
    try:
        lock = FileLock(folder / LOCK_NAME, "another --mode prepare", rest)
        try:
            yield
        finally:
            lock.remove()
    finally:
        remove_empty(made)
