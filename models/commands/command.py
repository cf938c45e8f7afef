"""What a mode of the command line is: a module of this package that holds a `Command`, and its line in table.py."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.io.streams import complain

if TYPE_CHECKING:
    from models.kinds.conf import ExperimentConfig
else:
    ExperimentConfig = object  # the blocks of a conf are loaded when one is read, and not for the help page

EXIT_DONE = 0
EXIT_EMPTY_SURFACE = 2  # as for all that the user can mend: a threshold, a region, more steps
EXIT_NOT_FINITE = 1
EXIT_CARD_FAILED = 3
EXIT_STOPPED = 143  # 128 + SIGTERM
# The groups of the help page, in its order.
EXPERIMENT, OUTPUT, PREPARATION, MACHINE = "which experiment", "what to write", "what to prepare", "where to run"
GROUPS = (EXPERIMENT, OUTPUT, PREPARATION, MACHINE)


@dataclass(frozen=True)
class Mode:
    """What to do; views holds the two photograph numbers of `interpolate` and is empty otherwise."""

    name: str
    views: tuple[int, ...] = ()


@dataclass(frozen=True)
class Flag:
    """A flag of the help page; modes that share one share this value."""

    name: str  # with its dashes
    group: str
    options: Mapping[str, Any]  # of argparse's `add_argument`


@dataclass(frozen=True)
class Arguments:
    """The checked command line; None where a flag was not given and the conf decides."""

    command: Command
    mode: Mode
    conf: Path | None
    case: str
    overrides: tuple[str, ...]
    checkpoint: Path | None
    device: str
    gpu: int
    values: argparse.Namespace  # of the modes' own flags, by name


@dataclass(frozen=True)
class Command:
    """A mode: its flags, its line on the help page, what is checked early, and what it does."""

    name: str
    line: str  # on the help page
    run: Callable[[Arguments, ExperimentConfig], int]  # returns the exit status; None without a conf
    flags: tuple[Flag, ...] = ()
    # Raises UserError for what the flags alone tell. It is asked for every mode: flags may lack their mode, too.
    check: Callable[[argparse.Namespace], None] = lambda values: None
    read: Callable[[str], Mode | None] | None = None  # a value of --mode that is not the name alone; None: another mode
    shown: str = ""  # on the help page, where that is not the name
    needs_checkpoint: bool = False
    needs_conf: bool = True  # else it gets one only where the command line names one
    is_shared: bool = False  # whether ranks work on it together; else the first one does it alone
    conf_of_case: Path | None = None  # what --case without --conf stands for; None where that is refused
    plain_word: str = ""  # the flag that a plain word after the mode, or several where it takes them, stand for

    @property
    def title(self) -> str:
        """The mode as the help page names it."""
        return self.shown or self.name

    def mode(self, text: str) -> Mode | None:
        """The mode that a value of --mode names, if it is this one; raises UserError where it is written wrongly."""
        if self.read is not None:
            return self.read(text)
        return Mode(text) if text == self.name else None


def flag(name: str, group: str, **options: Any) -> Flag:
    """A flag with the options that argparse knows."""
    return Flag(name, group, options)


def failed(sentence: str, status: int) -> int:
    """Say what is wrong on stderr; returns the exit status."""
    complain(f"error: {sentence}")
    return status
