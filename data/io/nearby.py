"""Hints about existing files beside a missing file or folder, for error messages."""

from __future__ import annotations

import difflib
import os
from itertools import islice
from pathlib import Path

MOST_NAMED = 12
MOST_READ = 4096  # maximum number of entries of a folder that are considered


def files_beside(path: Path, *suffixes: str) -> str:
    """A hint for a missing file: the most similar of the files with a suffix beside it, or all of them, or that there
    are none.
    """
    return _beside(path, _names(path.parent, suffixes), f"{' or '.join(suffixes)} file")


def folders_beside(path: Path) -> str:
    """A hint for a missing folder: the most similar of those beside it, or all of them, or that there are none."""
    return _beside(path, _names(path.parent, ()), "folder")


def _beside(path: Path, names: list[str] | None, what: str) -> str:
    """The hint; `names` are those beside `path`, None if its folder cannot be read."""
    if not os.path.isdir(path.parent):
        return f"; there is no folder {path.parent}"
    if not names:
        return f"; {path.parent} holds no {what}" if names is not None else ""
    shown = f"{', '.join(names[:MOST_NAMED])}{', ...' if len(names) > MOST_NAMED else ''}"
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / near[0]}? (there: {shown})" if near else f"; there: {shown}"


def _names(folder: Path, suffixes: tuple[str, ...]) -> list[str] | None:
    """Sorted names of the files with one of the suffixes, of the folders for (); None if the folder cannot be read."""
    try:
        entries = islice(folder.iterdir(), MOST_READ)
        kept = (entry for entry in entries if (entry.suffix in suffixes if suffixes else entry.is_dir()))
        return sorted(entry.name for entry in kept if not entry.name.startswith("."))
    except (OSError, ValueError):
        return None
