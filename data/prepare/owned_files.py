"""The record of files that `--mode prepare` wrote into a scene folder: it replaces and removes no others."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from data.errors import UserError, listed
from data.io.files import LINK_WORDS, read_regular, write_result

RECORD = "made.json"  # in the work folder
OLDER_RECORD = "scene.json"  # written by versions without the record
MOST_BYTES = 1 << 26  # of the record, enough for a million names

_NAME = re.compile(
    r"(image|mask)/[0-9]{3,}\.png|sparse/points\.ply|masks\.png|overview\.png|cameras_sphere\.npz|frame\.json"
)
_FOLDERS = ("image", "mask", "sparse")


def made_here(work: Path, target: Path) -> frozenset[str]:
    """The recorded names below `target`, whether the files still exist or not.

    If the record is damaged, all files with names of this mode, except masks, which may be drawn by hand.
    """
    if not any(os.path.lexists(work / name) for name in (RECORD, OLDER_RECORD)):
        return frozenset()
    try:
        names = json.loads(read_regular(work / RECORD, MOST_BYTES))["names"]
        return frozenset(name for name in names if _NAME.fullmatch(name))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return frozenset(name for name in _candidates(target) if not name.startswith("mask/"))


def record(work: Path, names: Iterable[str]) -> None:
    """Write the record; raises UserError if writing fails."""
    write_result(work / RECORD, json.dumps({"names": sorted(names)}, indent=1).encode())


def require_made(work: Path, target: Path, has_masks: bool) -> None:
    """Raises UserError if a file that a run would write exists and is not recorded; `has_masks`: masks too."""
    made = made_here(work, target)
    require_free(target, [name for name in _candidates(target) if has_masks or not name.startswith("mask/")], made)


def require_free(target: Path, names: Iterable[str], made: Iterable[str]) -> None:
    """Raises UserError if one of `names` exists and is not in `made`, or if a folder is a link."""
    links = [target / folder for folder in _FOLDERS if (target / folder).is_symlink()]
    if links:
        raise UserError(f"{links[0]}: {LINK_WORDS}")
    foreign = sorted(name for name in set(names).difference(made) if os.path.lexists(target / name))
    if foreign:
        raise UserError(
            f"{target}: {listed(foreign)}: exists and was not made by --mode prepare, which replaces only its own "
            "files; move it elsewhere, or choose another --case"
        )


def _candidates(target: Path) -> list[str]:
    """The existing files below `target` with names of this mode."""
    found = [*target.glob("*"), *(path for folder in _FOLDERS for path in (target / folder).glob("*"))]
    return [name for name in (path.relative_to(target).as_posix() for path in found) if _NAME.fullmatch(name)]
