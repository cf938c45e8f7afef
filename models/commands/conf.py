"""Reads the conf of a command line."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands.cases import scenes_of
from models.commands.command import Arguments, ExperimentConfig
from models.commands.program import PROGRAM_FOLDER

if TYPE_CHECKING:
    from data.config import DatasetConfig

CONFS = Path("confs")
DEFAULT_CONF = CONFS / "demo.conf"


def found_conf(path: Path) -> Path:
    """The conf file that a --conf names: it, or `confs/NAME` for a name alone, here or in the program's folder.

    If there is none of them, the first of them in a folder that holds confs, which the message then names.
    """
    names = [path] if path.parent != Path() else [path, CONFS / path]
    places = [place / name for place in (Path(), PROGRAM_FOLDER) for name in names]
    found = [place for place in places if os.path.isfile(place)]
    return next(iter(found or (place for place in places if any(place.parent.glob("*.conf")))), path)


def read_conf(arguments: Arguments) -> ExperimentConfig:
    """The conf of --conf, --case, --set and --seed; raises UserError if it is invalid.

    With a conf of the program's folder, paths of the scene that exist there and not in the current folder are taken
    from there, too.
    """
    from models.methods.conf import load_config

    path = conf_file(arguments)
    several = getattr(arguments.values, "cases", None)
    case = scenes_of(several)[0] if several and not arguments.case else arguments.case
    conf = load_config(path, case, arguments.overrides)
    is_own = path.is_absolute() and path.is_relative_to(PROGRAM_FOLDER)
    return replace(conf, dataset=_rebased(conf.dataset)) if is_own else conf


def conf_file(arguments: Arguments) -> Path:
    """The file of --conf; raises UserError if the mode needs one and none is given.

    The default is ./confs/demo.conf, or with --case the mode's `conf_of_case`.
    """
    if arguments.conf is not None:
        return arguments.conf
    default = DEFAULT_CONF
    if arguments.case:
        if arguments.command.conf_of_case is None:
            raise UserError(
                f"--case {arguments.case}: the default conf, {DEFAULT_CONF}, trains on the bundled scene; "
                "give a conf too, such as --conf confs/fast.conf"
            )
        default = arguments.command.conf_of_case
    return found_conf(default)


def conf_for(arguments: Arguments) -> ExperimentConfig | None:
    """The conf for the mode; None if it needs none and no flag refers to one. Raises UserError."""
    is_named = bool(arguments.conf or arguments.case or arguments.overrides)
    return read_conf(arguments) if arguments.command.needs_conf or is_named else None


def key_of(override: str) -> str:
    """The key that a `KEY=VALUE` of --set names."""
    return override.partition("=")[0].strip()


def _rebased(dataset: DatasetConfig) -> DatasetConfig:
    """The dataset block with each path that exists in the program's folder and not here replaced by that there."""
    paths = {name: getattr(dataset, name) for name in ("data_dir", "test_dir", "reference_mesh")}
    moved = {
        name: str(PROGRAM_FOLDER / path)
        for name, path in paths.items()
        if path and not os.path.exists(path) and os.path.exists(PROGRAM_FOLDER / path)
    }
    return replace(dataset, **moved)
