"""A lock on a file: one process at a time, for as long as it lives."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from data.errors import UserError
from data.io.files import open_regular

ATTEMPTS = 20  # to open the file while others remove it
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # what such file systems answer
LONGEST_NUMBER = 20  # bytes of the file that are read for the holder's number


@contextlib.contextmanager
def waited_for(folder: Path) -> Iterator[None]:
    """One process at a time works on what lies in `folder`; the others wait. None does where there are no locks.

    Raises OSError where the folder cannot be opened.
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
    """Holds the file at `path` until `release`, or until the process is gone, however it went.

    The kernel owns the lock, not the file: a file that a dead process left behind locks nothing. On a file system
    without locks there is none, and nothing is refused.
    """

    def __init__(self, path: Path, who: str, rest: str) -> None:
        """Take the lock, its folder made if need be.

        Raises TakenError, which says `who` (process N) `rest`, where another process has it, and OSError where the file
        cannot be made or written to, or is a link.
        """
        self.path = path
        self._who, self._rest = who, rest
        self._descriptor: int | None = None
        self._take()

    def confirm(self) -> bool:
        """Whether the lock is what it was. Where its file was deleted it is taken anew, and the answer is no.

        On a disk that does not answer it is tried again at the next call. Raises TakenError where another process has
        taken the lock meanwhile.
        """
        if self._is_in_place():
            return True
        self.release()
        try:
            self._take()
        except OSError:
            return True  # the work does not end for it; its results will tell whether the disk takes them
        return False

    def release(self) -> None:
        """Let go; further calls do nothing. The file stays."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def remove(self) -> None:
        """Let go of a lock that is held, its file removed first: whoever opens it meanwhile finds that out."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.release()

    def _take(self) -> None:
        """Open and lock the file, again where it was removed in between."""
        for _ in range(ATTEMPTS):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._descriptor = open_regular(self.path, os.O_RDWR)
            except FileNotFoundError:  # the folder went with another process
                continue
            self._lock(self._descriptor)
            if self._is_in_place():
                return self._sign(self._descriptor)
            self.release()  # its holder removed it meanwhile: it locks nothing
        raise OSError(errno.EAGAIN, "others remove it time and again: remove it yourself", str(self.path))

    def _lock(self, descriptor: int) -> None:
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

    def _sign(self, descriptor: int) -> None:
        """Write who holds the lock into its file; where the disk does not take that it goes again, with OSError."""
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            self.remove()
            raise

    def _is_in_place(self) -> bool:
        """Whether the file that is open is the one of that name; a disk that does not answer has not lost it."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path))
        except FileNotFoundError:
            return False
        except OSError:
            return True
