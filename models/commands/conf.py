"""The conf that a command line asks for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands.cases import scenes_of
from models.commands.command import Arguments, ExperimentConfig

if TYPE_CHECKING:
    from data.config import DatasetConfig

PROGRAM_FOLDER = Path(__file__).resolve().parents[2]
DEFAULT_CONF = Path("confs/demo.conf")


def read_conf(arguments: Arguments) -> ExperimentConfig:
    """The conf that --conf, --case, --set and --seed describe; raises UserError where it cannot be used.

    Without --conf it is ./confs/demo.conf, or for a scene named by --case the mode's `conf_of_case`; where that is not
    there it is the program's own. With the program's demo.conf, the paths of the scene that do not exist
    from here are taken from the program's folder too.
    """
    from models.kinds.conf import load_config

    default = DEFAULT_CONF
    if arguments.case and arguments.conf is None:
        if arguments.command.conf_of_case is None:
            raise UserError(
                f"--case {arguments.case}: the default conf, {DEFAULT_CONF}, trains on the bundled scene; "
                "give a conf too, such as --conf confs/wmask.conf"
            )
        default = arguments.command.conf_of_case
    conf_path = arguments.conf or default
    is_elsewhere = arguments.conf is None and not default.exists()
    if is_elsewhere:
        conf_path = PROGRAM_FOLDER / default
    several = getattr(arguments.values, "cases", None)
    case = scenes_of(several)[0] if several and not arguments.case else arguments.case
    conf = load_config(conf_path, case, arguments.overrides)
    is_bundled = is_elsewhere and default == DEFAULT_CONF
    return replace(conf, dataset=_rebased(conf.dataset)) if is_bundled else conf


def conf_for(arguments: Arguments) -> ExperimentConfig | None:
    """The conf for the mode; None where it needs none and the command line is about none. Raises UserError."""
    is_named = bool(arguments.conf or arguments.case or arguments.overrides)
    return read_conf(arguments) if arguments.command.needs_conf or is_named else None


def key_of(override: str) -> str:
    """The key that a `KEY=VALUE` of --set names."""
    return override.partition("=")[0].strip()


def _rebased(dataset: DatasetConfig) -> DatasetConfig:
    """The dataset with each path that is missing here looked for in the program's folder."""
    paths = {name: getattr(dataset, name) for name in ("data_dir", "test_dir", "reference_mesh")}
    moved = {name: str(PROGRAM_FOLDER / path) for name, path in paths.items() if path and not os.path.exists(path)}
    return replace(dataset, **moved)
