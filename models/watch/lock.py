"""One training at a time in an experiment's folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TextIO

from data.errors import UserError
from data.io.files import open_regular

LOCK_NAME = ".training.lock"


class FolderTakenError(UserError):
    """Another training runs in the folder."""


class FolderLock:
    """Holds `<folder>/.training.lock` until `release`, or until the process is gone, however it went.

    The kernel owns the lock, not the file: a file that a dead process left behind locks nothing.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock; raises UserError where the folder cannot be written to, and FolderTakenError, which is one,
        where another process holds it.

        On a file system without locks there is none, and nothing is refused.
        """
        self._path = folder / LOCK_NAME
        self._file: TextIO | None = None
        try:
            self._take()
        except OSError as error:
            self._abandon()
            raise UserError(
                f"{self._path}: cannot be written ({error.strerror or error}), as a training must: mend that, or "
                "choose another general.base_exp_dir"
            ) from error

    def confirm(self) -> bool:
        """Whether the lock is what it was. Where its file was deleted it is taken anew, and the answer is no.

        On a disk that does not answer it is tried again at the next call. Raises UserError where another process has
        taken the lock meanwhile.
        """
        if self._is_in_place():
            return True
        self.release()
        try:
            self._take()
        except OSError:
            return True  # a training does not end for it; its checkpoints will tell whether the disk takes them
        return False

    def release(self) -> None:
        """Let go; further calls do nothing. The file stays: removing it would let two processes lock two files."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _abandon(self) -> None:
        """Let go where the disk did not take the number: closing the file writes it once more."""
        with contextlib.suppress(OSError):
            self.release()

    def _take(self) -> None:
        """Open and lock the file, again where it was deleted in between; raises OSError where it cannot be opened."""
        while True:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_regular(self._path, os.O_RDWR | os.O_APPEND)
            self._file = open(descriptor, "a+", encoding="utf-8")  # noqa: SIM115 (held open on purpose)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = self._holder()
                self.release()
                raise FolderTakenError(
                    f"another training{holder} is running in {self._path.parent}: wait for it, stop it, or choose "
                    "another general.base_exp_dir"
                ) from error
            except OSError:
                return  # a file system without locks
            if self._is_in_place():
                break
            self.release()
        self._sign()

    def _sign(self) -> None:
        """Write who holds the lock; raises OSError where the disk does not take it."""
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def _is_in_place(self) -> bool:
        """Whether the file that is open is the one of that name: only then it locks the folder.

        A disk that does not answer has not lost it.
        """
        if self._file is None:
            return False
        try:
            named, held = os.lstat(self._path), os.fstat(self._file.fileno())
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)

    def _holder(self) -> str:
        """Who holds the lock, as far as the file says."""
        self._file.seek(0)
        number = self._file.read(20).strip()
        return f" (process {number})" if number.isascii() and number.isdigit() else ""
