"""One training at a time in an experiment's folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO

from data.errors import UserError

LOCK_NAME = ".training.lock"


class FolderLock:
    """Holds `<folder>/.training.lock` until `release`, or until the process is gone, however it went.

    The kernel owns the lock, not the file: a file that a dead process left behind locks nothing.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock; raises UserError where another process holds it or the folder cannot be written to.

        On a file system without locks there is none, and nothing is refused.
        """
        path = folder / LOCK_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: TextIO | None = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (held open on purpose)
        except OSError as error:
            raise UserError(
                f"the folder {folder} cannot be written to ({error.strerror or error}): choose general.base_exp_dir"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._holder()
            self.release()
            raise UserError(
                f"another training{holder} is running in {folder}: wait for it, stop it, or choose another "
                "general.base_exp_dir"
            ) from error
        except OSError:
            return  # a file system without locks
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        """Let go; further calls do nothing. The file stays: removing it would let two processes lock two files."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _holder(self) -> str:
        """Who holds the lock, as far as the file says."""
        self._file.seek(0)
        number = self._file.read(20).strip()
        return f" (process {number})" if number.isascii() and number.isdigit() else ""
