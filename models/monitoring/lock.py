"""Prevent two trainings in the same experiment folder."""

from __future__ import annotations

from pathlib import Path

from data.errors import UserError
from data.io.lock import FileLock

LOCK_NAME = ".training.lock"


class FolderLock(FileLock):
    """A lock on `<folder>/.training.lock`. The file is not removed: otherwise two processes could lock two files."""

    def __init__(self, folder: Path) -> None:
        """Acquire the lock; raises TakenError if another training has it, UserError if the file cannot be written."""
        path = folder / LOCK_NAME
        rest = f"is running in {folder}: wait for it, stop it, or choose another general.base_exp_dir"
        try:
            super().__init__(path, "another training", rest)
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written ({error.strerror or error}), and training requires it; make it "
                "writable, or choose another general.base_exp_dir"
            ) from error
