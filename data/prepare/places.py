"""The places of the files of a prepared scene, and the lock of its folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from data.errors import UserError
from data.io.files import missing_folders, remove_empty
from data.io.lock import FileLock
from data.prepare.masks import METHODS
from data.prepare.products import PRODUCTS
from data.prepare.sfm.reconstruct import DATABASE, LOG

LOCK_NAME = ".prepare.lock"


def require_apart(images: Path, mask_source: str, target: Path, work: str) -> None:
    """Raises UserError if an input is in a folder that will be written."""
    given = {"--images": images}
    if mask_source not in ("", *METHODS):
        given["--masks"] = Path(mask_source)
    for flag, path in given.items():
        for name in (work, *PRODUCTS):
            product = (target / name).resolve()
            if product == path.resolve() or product in path.resolve().parents:
                raise UserError(f"{flag} {path}: is in {product}, which would be overwritten; move it elsewhere")


def require_no_links(work: Path) -> None:
    """Raises UserError if a file of an earlier run that will be appended to is a link, or not a file."""
    for name in (LOCK_NAME, LOG, str(Path(DATABASE).parent)):
        path = work / name
        if path.is_symlink():
            raise UserError(f"{path}: is a link, and this program does not write through links; remove it")
        if name in (LOCK_NAME, LOG) and path.exists() and not path.is_file():
            raise UserError(f"{path}: is not a file; remove it")


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Create and lock `folder` while the body runs; raises UserError if another process holds the lock.

    Afterwards the lock file is removed, and the created folders too if they are empty. Raises OSError if the folder
    cannot be created or written.
    """
    made = missing_folders(folder)
    rest = f"is running in {folder.parent}: wait for it, stop it, or choose another --case"
    try:
        lock = FileLock(folder / LOCK_NAME, "another --mode prepare", rest)
        try:
            yield
        finally:
            lock.remove()
    finally:
        remove_empty(made)
