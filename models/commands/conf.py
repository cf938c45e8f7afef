"""Reads the conf of a command line."""

from __future__ import annotations

from pathlib import Path

from data.errors import UserError
from models.commands import functions
from models.commands.cases import scenes_of
from models.commands.command import Arguments, ExperimentConfig
from models.config.program import CONFS, found_conf

DEFAULT_CONF = CONFS / "demo.conf"


def read_conf(arguments: Arguments) -> ExperimentConfig:
    """The conf of --conf, --case, --set and --seed; raises UserError if it is invalid."""
    several = getattr(arguments.values, "cases", None)
    case = scenes_of(several)[0] if several and not arguments.case else arguments.case
    return functions.read_conf(conf_file(arguments), case, arguments.overrides)


def conf_file(arguments: Arguments) -> Path:
    """The file of --conf; raises UserError if the mode needs one and none is given.

    The default is ./confs/demo.conf, or with --case the mode's `conf_of_case`.
    """
    if arguments.conf is not None:
        return arguments.conf
    if not arguments.case:
        return found_conf(DEFAULT_CONF)
    if arguments.command.conf_of_case is None:
        raise UserError(
            f"--case {arguments.case}: the default conf, {DEFAULT_CONF}, trains on the bundled scene; "
            "give a conf too, such as --conf confs/fast.conf"
        )
    return found_conf(arguments.command.conf_of_case)


def conf_for(arguments: Arguments) -> ExperimentConfig | None:
    """The conf for the mode; None if it needs none and no flag refers to one. Raises UserError."""
    is_named = bool(arguments.conf or arguments.case or arguments.overrides)
    return read_conf(arguments) if arguments.command.needs_conf or is_named else None
