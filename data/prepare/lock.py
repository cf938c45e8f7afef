"""One preparation at a time in a scene folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from data.errors import UserError
from data.io.files import open_regular

LOCK_NAME = ".prepare.lock"
ATTEMPTS = 20  # to open the file while others remove it
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # what such file systems answer


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """While the body runs, `folder` is there and nobody else has it; raises UserError where another process does.

    The kernel owns the lock, not the file: what a dead process left behind locks nothing. Afterwards the file goes, and
    with it the folders that were made for it, where nothing has come into them. Raises OSError where the folder cannot
    be made or written to.
    """
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    path = folder / LOCK_NAME
    try:
        descriptor = _acquired(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)
    finally:
        for made_folder in made:
            with contextlib.suppress(OSError):  # it is gone already, or holds something
                made_folder.rmdir()


def _acquired(path: Path) -> int:
    """A descriptor that holds the lock of the file at `path`."""
    for _ in range(ATTEMPTS):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = open_regular(path, os.O_RDWR)
        except FileNotFoundError:  # the folder went with another process
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise UserError(
                f"another --mode prepare{holder} is at work in {path.parent.parent}: wait for it, stop it, or choose "
                "another --case"
            ) from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        if _is_at(descriptor, path):
            _sign(descriptor, path)
            return descriptor
        os.close(descriptor)  # its holder removed it meanwhile: it locks nothing
    raise UserError(f"{path}: cannot be locked; remove it, and try again")


def _sign(descriptor: int, path: Path) -> None:
    """Write who holds the lock into its file; where the disk does not take that the file goes again, with OSError."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        path.unlink(missing_ok=True)
        os.close(descriptor)
        raise


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _holder(descriptor: int) -> str:
    """Who holds the lock, as far as the file says."""
    with contextlib.suppress(OSError):
        number = os.pread(descriptor, 20, 0).strip()
        return f" (process {int(number)})" if number.isdigit() else ""
    return ""
