"""Locks on files and folders that are released when the process ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from data.errors import UserError
from data.io.files import open_regular

OPEN_ATTEMPTS = 20  # to open the file while other processes remove it
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # on file systems without locks
LONGEST_NUMBER = 20  # bytes of the holder's process number in the file


@contextlib.contextmanager
def waited_for(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder` while the body runs; other processes wait.

    On a file system without locks nobody waits. Raises OSError if the folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


class TakenError(UserError):
    """Another process holds the lock."""


class FileLock:
    """An exclusive lock on the file `path`, held until `release` or until the process ends.

    The lock belongs to the kernel, not to the file: a file left by an ended process locks nothing. On a file system
    without locks every process gets the lock.
    """

    def __init__(self, path: Path, who: str, rest: str) -> None:
        """Take the lock, creating its folder if needed.

        Raises TakenError with the message "`who` (process N) `rest`" if another process holds it, and OSError if the
        file cannot be created or written, or is a link.
        """
        self.path = path
        self._who, self._rest = who, rest
        self._descriptor: int | None = None
        self._acquire()

    def is_held(self) -> bool:
        """Whether the lock is still held. If its file was deleted, the lock is taken again and the result is False.

        If the disk fails, the result is True and the next call checks again. Raises TakenError if another process has
        taken the lock.
        """
        if self._is_in_place():
            return True
        self.release()
        try:
            self._acquire()
        except OSError:
            return True  # a disk failure will show when results are written
        return False

    def release(self) -> None:
        """Release the lock; further calls do nothing. The file stays."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file, then release the lock, so that a process that opened the file sees that it was removed."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.release()

    def _acquire(self) -> None:
        """Open, lock and sign the file; repeat if it was removed in between."""
        for _ in range(OPEN_ATTEMPTS):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._descriptor = descriptor = open_regular(self.path, os.O_RDWR)
            except FileNotFoundError:  # another process removed the folder
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                number = os.pread(descriptor, LONGEST_NUMBER, 0).strip()
                self.release()
                holder = f" (process {int(number)})" if number.isdigit() else ""
                raise TakenError(f"{self._who}{holder} {self._rest}") from error
            except OSError as error:
                if error.errno not in WITHOUT_LOCKS:
                    self.release()
                    raise
            if self._is_in_place():
                try:
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                except OSError:
                    self.remove()
                    raise
                return
            self.release()  # the holder removed the file: this lock excludes nobody
        raise OSError(errno.EAGAIN, "other processes keep removing it: remove it yourself", str(self.path))

    def _is_in_place(self) -> bool:
        """Whether the open file is still the one at `path`; True if the disk fails."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path))
        except FileNotFoundError:
            return False
        except OSError:
            return True
