"""The description of a mode: each module of this package has a `Command`, which is listed in table.py."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from data.io.streams import complain

if TYPE_CHECKING:
    from models.commands.flags import Flag
    from models.methods.conf import ExperimentConfig
else:
    ExperimentConfig = object  # imported when a conf is read, not for the help page

EXIT_DONE = 0
EXIT_EMPTY_SURFACE = 2  # as for mistakes of the user: another threshold, region or more steps may help
EXIT_NOT_FINITE = 1
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
    flags: tuple[Flag, ...] = ()
    # Raises UserError for invalid flags. Called for every mode, since a flag may be given with a mode that lacks it.
    check: Callable[[argparse.Namespace], None] = lambda values: None
    # Last lines of a run that ended with EXIT_DONE, such as the next command; not printed for a step of another mode.
    next_steps: Callable[[Arguments], list[str]] = lambda arguments: []
    is_named: Callable[[str], bool] | None = None  # whether a --mode value is of this mode, if not only its name is
    shown: str = ""  # the name on the help page, if different
    needs_checkpoint: bool = False
    needs_conf: bool = True  # otherwise a conf is read only if the command line names one
    is_shared: bool = False  # whether processes started by mpirun share the work; otherwise one of them does it
    conf_of_case: Path | None = None  # the default conf for --case without --conf; None: that is an error
    continues: bool = False  # whether the same command continues after Ctrl-C
    plain_word: str = ""  # the flag that positional words after the mode are values of

    @property
    def title(self) -> str:
        """The mode as the help page names it."""
        return self.shown or self.name

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
