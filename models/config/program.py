"""The program's place: its folder, the confs in it, and the command that starts it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

PROGRAM_FOLDER = Path(__file__).resolve().parents[2]
PROGRAM = PROGRAM_FOLDER / "exp_runner.py"
FROM_A_CLONE = "python exp_runner.py"
# Where pip installed it, the folder is the package `neus`, which has this module of the command.
CALLED = "neus" if (PROGRAM_FOLDER / "__main__.py").is_file() else FROM_A_CLONE
CONFS = Path("confs")


def found_conf(path: Path) -> Path:
    """The conf file that a --conf names: it, or `confs/NAME` for a name alone, here or in the program's folder.

    If there is none of them, the first of them in a folder that holds confs, which the message then names.
    """
    names = [path] if path.parent != Path() else [path, CONFS / path]
    places = [place / name for place in (Path(), PROGRAM_FOLDER) for name in names]
    found = [place for place in places if os.path.isfile(place)]
    return next(iter(found or (place for place in places if any(place.parent.glob("*.conf")))), path)


def rebased(dataset: Any) -> Any:
    """A `DatasetConfig` with each path that exists in the program's folder and not here replaced by that there."""
    paths = {name: getattr(dataset, name) for name in ("data_dir", "test_dir", "reference_mesh")}
    moved: dict[str, Any] = {
        name: str(PROGRAM_FOLDER / path)
        for name, path in paths.items()
        if path and not os.path.exists(path) and os.path.exists(PROGRAM_FOLDER / path)
    }
    return replace(dataset, **moved)
