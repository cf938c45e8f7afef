"""Command lines as they are printed: complete, and working in the folder where the user is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.commands.command import Selected
from models.commands.flags import Flag
from models.config.program import CALLED, FROM_A_CLONE, PROGRAM

CONSTANTS = {"store_true": True, "store_false": False, "store_const": None}  # what a flag without a value stores


def command_line(words: Sequence[str]) -> str:
    """The program with these flags, for a POSIX shell in the current folder.

    In a clone, exp_runner.py is named by its path from the current folder if it is inside, else by its full path.
    """
    if CALLED != FROM_A_CLONE:
        return f"{CALLED} {shlex.join(words)}"
    here = Path(os.path.realpath(os.curdir))
    path = PROGRAM.relative_to(here) if PROGRAM.is_relative_to(here) else PROGRAM
    return shlex.join(["python", str(path), *words])


def of_the_scene(selected: Selected, conf: Path | None, left_out: str = "") -> list[str]:
    """The flags --conf, --case, --device, --gpu and --set; `left_out`: a key without its --set."""
    words = [*flag_of("--conf", "" if conf is None else str(conf)), *flag_of("--case", selected.case)]
    words += [] if selected.device == "auto" else ["--device", selected.device]
    words += [] if selected.gpu == 0 else ["--gpu", str(selected.gpu)]
    return words + [word for text in selected.without(left_out).overrides for word in flag_of("--set", text)]


def given_flags(values: Mapping[str, Any], flags: Sequence[Flag]) -> list[str]:
    """The flags whose values differ from the defaults, as they are typed; `values` by `dest` of argparse."""
    words: list[str] = []
    for one in flags:
        default = one.options.get("default")
        value = values.get(one.options.get("dest", one.name.lstrip("-")), default)
        action = one.options.get("action", "store")
        if action in CONSTANTS:
            words += [one.name] if value == one.options.get("const", CONSTANTS[action]) else []
        elif action == "append":
            words += [word for entry in value for word in (one.name, *map(_word, entry))]
        elif value not in (None, default):
            several = isinstance(value, list | tuple)
            words += [one.name, *map(_word, value)] if several else flag_of(one.name, _word(value))
    return words


def _word(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def flag_of(name: str, value: str) -> list[str]:
    """A flag with its value, [] without a value; a value that starts with a dash needs an equals sign."""
    if value.startswith("-"):
        return [f"{name}={value}"]
    return [name, value] if value else []
