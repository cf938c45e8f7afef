"""Which files of a scene folder `--mode prepare` has made: those alone it replaces and removes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from data.errors import UserError, listed
from data.io.files import LINK_WORDS, read_regular, write_result

RECORD = "made.json"  # in the work folder
OLDER_RECORD = "scene.json"  # the stamp that a version without the record left
MOST_BYTES = 1 << 26  # of the record: a million names

_NAME = re.compile(r"(image|mask)/[0-9]{3,}\.png|sparse/points\.ply|masks\.png|overview\.png|cameras_sphere\.npz")
_FOLDERS = ("image", "mask", "sparse")


def made_here(work: Path, target: Path) -> frozenset[str]:
    """The names below `target` of what was made by runs with the work folder `work`, whether it is still there or not.

    Where the record is damaged those are meant that have such a name; masks are not, which people draw.
    """
    if not any(os.path.lexists(work / name) for name in (RECORD, OLDER_RECORD)):
        return frozenset()
    try:
        names = json.loads(read_regular(work / RECORD, MOST_BYTES))["names"]
        return frozenset(name for name in names if _NAME.fullmatch(name))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return frozenset(name for name in _candidates(target) if not name.startswith("mask/"))


def record(work: Path, names: Iterable[str]) -> None:
    """Remember that these are made here; raises UserError where the disk does not take it."""
    write_result(work / RECORD, json.dumps({"names": sorted(names)}, indent=1).encode())


def require_made(work: Path, target: Path, has_masks: bool) -> None:
    """Raises UserError where what a run is to write is there already, and none made it; `has_masks`: masks too."""
    made = made_here(work, target)
    require_free(target, [name for name in _candidates(target) if has_masks or not name.startswith("mask/")], made)


def require_free(target: Path, names: Iterable[str], made: Iterable[str]) -> None:
    """Raises UserError where one of `names` is there and not among `made`, or a folder on the way is a link."""
    links = [target / folder for folder in _FOLDERS if (target / folder).is_symlink()]
    if links:
        raise UserError(f"{links[0]}: {LINK_WORDS}")
    foreign = sorted(name for name in set(names).difference(made) if os.path.lexists(target / name))
    if foreign:
        raise UserError(
            f"{target}: {listed(foreign)}: there already, and not made by --mode prepare, which replaces nothing else; "
            "move that elsewhere, or choose another --case"
        )


def _candidates(target: Path) -> list[str]:
    """What is in `target` under a name that a run gives."""
    found = [*target.glob("*"), *(path for folder in _FOLDERS for path in (target / folder).glob("*"))]
    return [name for name in (path.relative_to(target).as_posix() for path in found) if _NAME.fullmatch(name)]
