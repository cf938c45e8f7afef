"""Files that are either what they were or what they were to become, whenever the machine stops."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from data.errors import UserError

LINK_WORDS = "it is a symbolic link, and nothing is written through links: remove it"
LONGEST_NAME = 235  # bytes: file systems take 255, and while it is written its name is ".<name>.<process>.tmp"
HARD_LINK_WORDS = "it is a hard link, and nothing is written through links: remove it"


def is_file(path: Path) -> bool:
    """Whether a file is there, not so for a name longer than the file system takes.

    Raises OSError where nobody can tell: a folder on the way may not be entered.
    """
    try:
        return path.is_file()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path` such that a crash at any moment leaves the old file or the new one, never a mixture.

    A link at `path` is replaced, not followed. The folder must be there. Raises OSError where the disk does not take
    it; what was there stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # of a dead process with this number, or a link that leads elsewhere
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_result(path: Path, content: bytes) -> None:
    """`write_atomically`, with the folder made if need be; raises UserError where the disk does not take it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); check the folder and the space"
        ) from error


def require_place(path: Path, flag: str) -> None:
    """Raises UserError, which names the flag, where no file can be written: better before the work than after it."""
    place = next((folder for folder in path.absolute().parents if os.path.lexists(folder)), Path("/"))
    if os.path.isdir(path):
        raise UserError(f"{flag} {path}: is a folder; name a file in it")
    if not (os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)):
        raise UserError(f"{flag} {path}: nothing can be written in {place}; choose another place")
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise UserError(
            f"{flag} {path}: cannot be written, its name is longer than {LONGEST_NAME} bytes; choose a shorter one"
        )
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise UserError(f"{flag} {path}: is protected against writing; name another file, or make it writable")


def make_folder(root: Path, inner: Path | str) -> Path:
    """The folder `root / inner`, made if need be; `root` itself may be a link or lie behind one.

    Raises OSError where a part of `inner` is a symbolic link, or cannot be made.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = root
    for part in Path(inner).parts:
        folder = folder / part
        if folder.is_symlink():
            raise OSError(errno.ELOOP, LINK_WORDS, str(folder))
        folder.mkdir(exist_ok=True)
    return folder


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all it holds, if it is there; UserError where that is not allowed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be removed ({error.strerror or error}); remove it yourself") from error


def missing_folders(folder: Path) -> list[Path]:
    """`folder` and those above it, innermost first, as far as they are not there."""
    return [path for path in (folder, *folder.parents) if not os.path.lexists(path)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of `folders` that are there and hold nothing."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of the regular file `path`, made if need be; `flags` as of os.open.

    Raises OSError for a link, which is not followed, for a file that has another name as well (a hard link), and for a
    pipe, which is not waited for.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        words = {errno.ELOOP: LINK_WORDS, errno.ENXIO: "it is not a file"}.get(error.errno, error.strerror)
        raise OSError(error.errno, words, str(path)) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        words = HARD_LINK_WORDS if stat.S_ISREG(found.st_mode) else "it is not a file"
        raise OSError(errno.EINVAL, words, str(path))
    return descriptor


def read_regular(path: Path, most: int = -1) -> bytes:
    """The bytes of a regular file, at most `most` of them (-1: all); raises OSError for a pipe, socket, device, folder.

    They are not waited for; links are followed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(most)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
