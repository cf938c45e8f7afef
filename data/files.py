"""Files that are either what they were or what they were to become, whenever the machine stops."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from data.errors import UserError


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path` such that a crash at any moment leaves the old file or the new one, never a mixture.

    The folder must be there. Raises OSError where the disk does not take it; what was there stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
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


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
