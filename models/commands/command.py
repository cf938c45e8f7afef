"""The description of a mode, the command line that selects it, and command lines as they are printed."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from data.io.streams import complain
from models.commands.flags import OF_MODE, Flag
from models.config.program import CALLED, FROM_A_CLONE, PROGRAM

EXIT_DONE = 0
EXIT_EMPTY_SURFACE = 2  # as for mistakes of the user: another threshold, region or more steps may help
EXIT_FAILED = 1  # a training, some of several trainings, or a check
EXIT_GPU_FAILED = 3
EXIT_OF_SIGNAL = 128  # plus the number of the signal that ended the program


@dataclass(frozen=True)
class Selected:
    """The conf and the device that a command line or a call selects."""

    conf: Path | None
    case: str
    overrides: tuple[str, ...]  # KEY=VALUE
    device: str
    gpu: int

    def without(self, *keys: str) -> Self:
        """The selection without the overrides of these keys."""
        return replace(self, overrides=tuple(text for text in self.overrides if key_of(text) not in keys))

    def given(self, key: str) -> str | None:
        """The last value that the overrides give a key; None if they give none."""
        values = [text.partition("=")[2].strip() for text in self.overrides if key_of(text) == key]
        return values[-1] if values else None


@dataclass(frozen=True)
class Arguments(Selected):
    """The checked command line; None for a flag that was not given."""

    command: Command
    mode: str  # the value of --mode
    checkpoint: Path | None
    values: argparse.Namespace  # of the modes' own flags, by name


@dataclass(frozen=True)
class Command:
    """A mode: its flags, its line on the help page, its early checks and its action."""

    name: str
    line: str  # on the help page
    run: Callable[[Arguments, Any], int]  # takes the conf, None without one; returns the exit status
    # Raises UserError for invalid flags of this mode.
    check: Callable[[argparse.Namespace], None] = lambda values: None
    # Last lines of a run that ended with EXIT_DONE, such as the next command; not printed for a step of another mode.
    next_steps: Callable[[Arguments], list[str]] = lambda arguments: []
    is_named: Callable[[str], bool] | None = None  # whether a --mode value is of this mode, if not only its name is
    display_name: str = ""  # the name on the help page, if different
    needs_checkpoint: bool = False
    needs_conf: bool = True  # otherwise a conf is read only if the command line names one
    is_shared: bool = False  # whether processes started by mpirun share the work; otherwise one of them does it
    conf_of_case: Path | None = None  # the default conf for --case without --conf; None: that is an error
    continues: bool = False  # whether the same command continues after Ctrl-C
    plain_word: str = ""  # the flag that positional words after the mode are values of

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Its own flags, besides those of all modes."""
        return OF_MODE[self.name]

    @property
    def title(self) -> str:
        """The mode as the help page names it."""
        return self.display_name or self.name

    def mode(self, text: str) -> bool:
        """Whether the --mode value names this mode."""
        return text == self.name if self.is_named is None else self.is_named(text)


def key_of(override: str) -> str:
    """The key that a `KEY=VALUE` of --set names."""
    return override.partition("=")[0].strip()


def failed(sentence: str, status: int) -> int:
    """Print an error on stderr; returns the exit status."""
    complain(f"error: {sentence}")
    return status


# What a flag without a value stores.
CONSTANTS = {"store_true": True, "store_false": False, "store_const": None}


def command_line(words: Sequence[str]) -> str:
    """The program with these flags, for a POSIX shell in the current folder.

    In a clone, exp_runner.py is named by its path from the current folder if it is inside, else by its full path.
    """
    if CALLED != FROM_A_CLONE:
        return f"{CALLED} {shlex.join(words)}"
    here = Path(os.path.realpath(os.curdir))
    path = PROGRAM.relative_to(here) if PROGRAM.is_relative_to(here) else PROGRAM
    return shlex.join(["python", str(path), *words])


def scene_flags(selected: Selected, conf: Path | None, left_out: str = "") -> list[str]:
    """The flags --conf, --case, --device, --gpu and --set; `left_out`: a key without its --set."""
    words = [*flag_words("--conf", "" if conf is None else str(conf)), *flag_words("--case", selected.case)]
    words += [] if selected.device == "auto" else ["--device", selected.device]
    words += [] if selected.gpu == 0 else ["--gpu", str(selected.gpu)]
    return words + [word for text in selected.without(left_out).overrides for word in flag_words("--set", text)]


def changed_flags(values: Mapping[str, Any], flags: Sequence[Flag]) -> list[str]:
    """The flags whose values differ from the defaults, as they are typed; `values` by `dest` of argparse."""
    words: list[str] = []
    for one in flags:
        default = one.options.get("default")
        value = values.get(one.options.get("dest", one.name.lstrip("-")), default)
        action = one.options.get("action", "store")
        if action in CONSTANTS:
            words += [one.name] if value == one.options.get("const", CONSTANTS[action]) else []
        elif action == "append":
            words += [word for entry in value for word in (one.name, *map(_argument, entry))]
        elif value not in (None, default):
            several = isinstance(value, list | tuple)
            words += [one.name, *map(_argument, value)] if several else flag_words(one.name, _argument(value))
    return words


def _argument(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def flag_words(name: str, value: str) -> list[str]:
    """A flag with its value, [] without a value; a value that starts with a dash needs an equals sign."""
    if value.startswith("-"):
        return [f"{name}={value}"]
    return [name, value] if value else []
