"""One training at a time in an experiment's folder."""

from __future__ import annotations

from pathlib import Path

from data.errors import UserError
from data.io.lock import FileLock

LOCK_NAME = ".training.lock"


class FolderLock(FileLock):
    """Holds `<folder>/.training.lock`. The file stays: removing it would let two processes lock two files."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; raises TakenError where another training has it, UserError where it cannot be written."""
        path = folder / LOCK_NAME
        rest = f"is running in {folder}: wait for it, stop it, or choose another general.base_exp_dir"
        try:
            super().__init__(path, "another training", rest)
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written ({error.strerror or error}), and training requires it; make it "
                "writable, or choose another general.base_exp_dir"
            ) from error
