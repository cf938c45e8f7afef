"""Atomic writing, removal and reading of files; links are not written through."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import shutil
import stat
from collections.abc import Iterable
from io import BufferedReader
from itertools import islice
from pathlib import Path

from data.errors import UserError

LINK_WORDS = "it is a symbolic link, and this program does not write through links: remove it"
LONGEST_NAME = 235  # bytes: file systems allow 255, and the temporary name is ".<name>.<process>.tmp"
HARD_LINK_WORDS = "it is a hard link, and this program does not write through links: remove it"
MOST_SUGGESTED = 12
MOST_READ = 4096  # maximum number of entries of a folder that are considered


def from_home(text: str) -> str:
    """The path with ~ or ~NAME at its beginning replaced by the home folder, as a shell does."""
    return os.path.expanduser(text) if text.startswith("~") else text


def is_file(path: Path) -> bool:
    """Whether the file exists; False for a name that is too long for the file system.

    Raises OSError if a parent folder may not be entered.
    """
    try:
        return path.is_file()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: after a crash the file is either the old or the new one.

    A link at `path` is replaced, not followed. The folder must exist. Raises OSError if writing fails; the old file
    remains.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # from an ended process with the same number, or a foreign link
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # makes the renaming durable
        finally:
            os.close(folder)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_result(path: Path, content: bytes) -> None:
    """`write_atomically`, creating the folder if needed; raises UserError if writing fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); check the folder and the free space"
        ) from error


def require_place(path: Path, flag: str) -> None:
    """Raises UserError, naming the flag, if no file can be written at `path`; called before the work starts."""
    place = next((folder for folder in path.absolute().parents if os.path.lexists(folder)), Path("/"))
    if os.path.isdir(path):
        raise UserError(f"{flag} {path}: is a folder; name a file in it")
    if not (os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)):
        raise UserError(f"{flag} {path}: the folder {place} is not writable; choose another folder")
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise UserError(
            f"{flag} {path}: cannot be written, its name is longer than {LONGEST_NAME} bytes; choose a shorter one"
        )
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise UserError(f"{flag} {path}: is read-only; name another file, or make it writable")


def make_folder(root: Path, inner: Path | str) -> Path:
    """Create the folder `root / inner` if needed and return it; `root` itself may contain links.

    Raises OSError if a part of `inner` is a symbolic link, or cannot be created.
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
    """Remove a file, a link or a folder with its content, if it exists; raises UserError if that fails."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be removed ({error.strerror or error}); remove it yourself") from error


def missing_folders(folder: Path) -> list[Path]:
    """Those of `folder` and its parents that do not exist, innermost first."""
    return [path for path in (folder, *folder.parents) if not os.path.lexists(path)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those of `folders` that exist and are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of the regular file `path`, created if needed; `flags` of os.open.

    Raises OSError for a symbolic link, a file with several hard links and, without waiting, for a pipe.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        words = {errno.ELOOP: LINK_WORDS, errno.ENXIO: "it is not a file"}.get(error.errno or 0, error.strerror)
        raise OSError(error.errno, words, str(path)) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        words = HARD_LINK_WORDS if stat.S_ISREG(status.st_mode) else "it is not a file"
        raise OSError(errno.EINVAL, words, str(path))
    return descriptor


def open_input(path: Path | str) -> BufferedReader:
    """A regular file for reading, through which every input is opened; links are followed.

    Raises OSError, without waiting, for a pipe, socket, device or folder, and for a name that no file can have.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a zero character
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, "rb")


def read_regular(path: Path | str, most: int = -1) -> bytes:
    """At most `most` bytes of a regular file (-1: all); raises OSError as `open_input`, and where memory runs out."""
    with open_input(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size  # a larger `most` would take memory, and the file may grow
            return file.read(size if most < 0 else min(most, size))
        except (MemoryError, OverflowError) as error:
            raise OSError(errno.ENOMEM, "it does not fit into memory", str(path)) from error


def similar_names(path: Path, *suffixes: str) -> str:
    """A hint for a missing file with a suffix, or folder: the most similar one there, or all of them, or none."""
    folder, kind = path.parent, f"{' or '.join(suffixes)} file" if suffixes else "folder"
    if not os.path.isdir(folder):
        return f"; there is no folder {folder}"
    try:
        entries = [entry for entry in islice(folder.iterdir(), MOST_READ) if not entry.name.startswith(".")]
        names = sorted(entry.name for entry in entries if (entry.suffix in suffixes if suffixes else entry.is_dir()))
    except (OSError, ValueError):
        return ""
    if not names:
        return f"; {folder} holds no {kind}"
    listing = f"{', '.join(names[:MOST_SUGGESTED])}{', ...' if len(names) > MOST_SUGGESTED else ''}"
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {folder / near[0]}? (there: {listing})" if near else f"; there: {listing}"
