"""Reads the conf of a command line."""

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
    """The conf of --conf, --case, --set and --seed; raises UserError if it is invalid.

    The default for --conf is ./confs/demo.conf, or with --case the mode's `conf_of_case`; if the file does not exist,
    that of the program's folder. With the program's demo.conf, paths of the scene that do not exist relative to the
    current folder are taken from the program's folder, too.
    """
    from models.methods.conf import load_config

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
    """The conf for the mode; None if it needs none and no flag refers to one. Raises UserError."""
    is_named = bool(arguments.conf or arguments.case or arguments.overrides)
    return read_conf(arguments) if arguments.command.needs_conf or is_named else None


def key_of(override: str) -> str:
    """The key that a `KEY=VALUE` of --set names."""
    return override.partition("=")[0].strip()


def _rebased(dataset: DatasetConfig) -> DatasetConfig:
    """The dataset block with each missing path replaced by that in the program's folder."""
    paths = {name: getattr(dataset, name) for name in ("data_dir", "test_dir", "reference_mesh")}
    moved = {name: str(PROGRAM_FOLDER / path) for name, path in paths.items() if path and not os.path.exists(path)}
    return replace(dataset, **moved)
