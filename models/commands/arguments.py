"""The command line: the help page, and the checks of the arguments."""

from __future__ import annotations

import argparse
import itertools
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from data.errors import UserError, listed
from data.io.files import from_home
from data.io.streams import say
from models.commands.command import Arguments, Command
from models.commands.flags import COMMON, HELP_GROUPS, Flag
from models.commands.modes import BY_NAME, COMMANDS, MODE_NAMES
from models.config.hocon import key_meant
from models.config.program import CALLED, FROM_A_CLONE, find_conf, program_version
from models.config.strict import nearest
from models.requests import TrainingRequest
from models.results.request_checks import require_training

NEGATIVE_NUMBER = re.compile(r"-(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$")
_LINES = "\n".join(f"  {command.title:<18}{command.line}" for command in COMMANDS)
*_OTHERS, _LAST = (command.title for command in COMMANDS if not command.needs_checkpoint)
_NEED = textwrap.fill(
    f"All modes but {', '.join(_OTHERS)} and {_LAST} need a checkpoint: the newest one in the experiment folder, or "
    "that of --checkpoint.",
    width=120,
)
DESCRIPTION = f"""\
--mode MODE --help explains one mode and its flags.

NeuS, NeRF and Gaussian splatting in Jittor: from posed images to a triangle mesh and novel views.

modes:
{_LINES}

{_NEED}
"""

_EPILOG = """\
examples:
  python exp_runner.py                                                  train on the bundled scene
  python exp_runner.py --mode validate_mesh                             extract its mesh from the newest checkpoint
  python exp_runner.py --mode reconstruct --images photos --minutes 10      from photographs to a mesh
  python exp_runner.py --mode prepare --images photos --case bear       create ./public_data/bear from photographs
  python exp_runner.py --conf confs/wmask.conf --case bear              train on ./public_data/bear
  python exp_runner.py --conf confs/wmask.conf --case bear --is_continue
  python exp_runner.py --conf confs/wmask.conf --case bear --mode inspect
  python exp_runner.py --conf confs/wmask.conf --case bear --mode plan
  python exp_runner.py --conf confs/wmask.conf --case bear --mode interpolate_0_5
  python exp_runner.py --mode compare exp/demo exp/bear                 compare the metrics of experiments
  python exp_runner.py --set train.end_iter=500 --set train.batch_size=128 --seed 7
  python exp_runner.py --conf confs/wmask.conf --case bear --mode validate_mesh --checkpoint ckpt_300000.pth

Paths in a conf are relative to the working directory. If it contains no confs/demo.conf, the default conf and the
bundled scene of the program's folder are used; the results are still written to ./exp/demo.
For the keys of a conf, with units and ranges, see confs/base/.

exit status: 0 success; 1 the training failed (NaN, Inf, collapse), reconstruct found no surface, a check of doctor
failed, or the program crashed; 2 an error in a flag, conf, scene or checkpoint, or no surface; 3 the GPU failed during
computation: run again;
129, 130, 143 ended by SIGHUP (a closed terminal), SIGINT (Ctrl-C), SIGTERM
"""

EPILOG = _EPILOG.replace(FROM_A_CLONE, CALLED)


def parse_mode(text: str) -> Command:
    """The mode of a --mode value; raises UserError, naming the nearest mode, for an unknown one."""
    for command in COMMANDS:
        if command.mode(text):
            return command
    raise UserError(f"--mode {text}: unknown mode{nearest(text, MODE_NAMES)}")


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse the command line (without the program's name); raises UserError for mistakes.

    A mode as the first word is a subcommand, which has its own flags only; after --mode MODE, most flags of other modes
    have no effect. --help prints the help page, with a mode that of the mode, --version the version, and both raise
    SystemExit(0).
    """
    parser = make_parser()
    flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    argv = [_normalized(word, flags) for word in argv]
    is_subcommand = bool(argv) and not argv[0].startswith("-") and any(one.mode(argv[0]) for one in COMMANDS)
    argv = ["--mode", *argv] if is_subcommand else argv
    if "--version" in argv:
        say(f"neus-jittor {program_version()}")
        raise SystemExit(0)
    if help_words := {"-h", "--help"}.intersection(argv):
        mode = parser.parse_known_args([word for word in argv if word not in help_words])[0].mode
        has_mode = any(word.partition("=")[0] == "--mode" for word in argv)
        make_parser(parse_mode(mode) if has_mode else None).print_help()
        raise SystemExit(0)
    _require_once(parser._option_string_actions, argv)
    values, unknown = parser.parse_known_args(argv)
    unknown = _assign_positional(values, unknown)
    if unknown:
        raise UserError(f"{unknown[0]}: unknown argument{_argument_hint(unknown, flags)}")
    command = parse_mode(values.mode)
    given, own = {word.partition("=")[0] for word in argv}, {entry.name for entry in (*COMMON, *command.flags)}
    for one in _flags():
        # A flag of other modes is an error for a subcommand, or where it never has a meaning elsewhere.
        if one.name in given and one.name not in own and (is_subcommand or one.elsewhere is not None):
            modes = listed([other.title for other in COMMANDS if one in other.flags])
            raise UserError(f"{one.name}: is a flag of --mode {modes}, not of {command.title}{one.elsewhere or ''}")
    require_training(TrainingRequest(values.is_continue, values.overwrite, values.checkpoint))
    command.check(values)
    short_forms = {"train.seed": values.seed, "dataset.roi": values.roi}
    overrides = [f"{key}={value}" for key, value in short_forms.items() if value is not None]
    return Arguments(
        conf=None if values.conf is None else find_conf(values.conf),
        case=values.case,
        overrides=(*values.overrides, *overrides),
        device=values.device,
        gpu=values.gpu,
        command=command,
        mode=values.mode,
        checkpoint=values.checkpoint,
        values=values,
    )


def _require_once(actions: Mapping[str, argparse.Action], argv: Sequence[str]) -> None:
    """Raises UserError for two flags that give one setting different values."""
    given: dict[str, list[str]] = {}  # the first words of each setting
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        action = actions.get(name)
        if action is None or isinstance(action, argparse._AppendAction):
            continue
        following = list(itertools.takewhile(lambda other: other.partition("=")[0] not in actions, argv[at + 1 :]))
        count = {"None": 1, "?": 1, "+": len(argv)}.get(str(action.nargs))
        words = [name, value] if equals else [name, *following[: int(action.nargs or 0) if count is None else count]]
        if (first := given.setdefault(action.dest, words)) != words:
            raise UserError(f"{' '.join(first)}, {' '.join(words)}: contradict each other; give only one of them")


def _flags() -> list[Flag]:
    """The flags of all modes, then the modes' own, which may repeat."""
    return [*COMMON, *(entry for command in COMMANDS for entry in command.flags)]


def _assign_positional(values: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Assign positional words to the `plain_word` flag of the mode; returns the remaining unknown arguments.

    A single word, or any number of them if the flag takes several values.
    """
    command = BY_NAME.get(values.mode)
    name = command.plain_word if command is not None else ""
    if not name or getattr(values, name) is not None or any(word.startswith("-") for word in unknown):
        return unknown
    takes_many = any(entry.name == f"--{name}" and "nargs" in entry.options for entry in BY_NAME[values.mode].flags)
    if not unknown or (len(unknown) > 1 and not takes_many):
        return unknown
    setattr(values, name, [Path(word) for word in unknown] if takes_many else Path(unknown[0]))
    return []


class _Parser(argparse.ArgumentParser):
    """argparse that raises UserError, so that all mistakes are reported in the same way."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError with argparse's message."""
        raise UserError(f"{message.removeprefix('argument ')}; --mode MODE --help explains the flags of a mode")

    def _print_message(self, message: str, file: object = None) -> None:
        say(*message.rstrip("\n").split("\n"))


def make_parser(command: Command | None = None) -> argparse.ArgumentParser:
    """The parser with all flags in their groups, or with those of one mode, whose page it prints."""
    program = CALLED.removeprefix("python ")
    parser = _Parser(
        prog=program,
        usage=f"{program} --mode {'MODE --help' if command is None else f'{command.title} [flags]'}",
        description=DESCRIPTION if command is None else f"--mode {command.title}: {command.line}",
        epilog=EPILOG if command is None else _examples(command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser._negative_number_matcher = NEGATIVE_NUMBER  # argparse's pattern treats -1e-3 as a flag
    flags = {entry.name: entry for entry in (_flags() if command is None else [*COMMON, *command.flags])}
    for title in HELP_GROUPS:
        group = parser.add_argument_group(title)
        for entry in flags.values():
            if entry.group == title:
                options = dict(entry.options)
                modes, _, text = options["help"].partition(": ")
                if command is not None and all(mode in BY_NAME for mode in modes.split(", ")):
                    options["help"] = text  # without the list of modes
                group.add_argument(entry.name, **options)
    return parser


def _examples(command: Command) -> str:
    """The end of a mode's page: the examples of the help page that use this mode."""
    name = re.escape(command.title).replace("I_J", r"\d+_\d+")
    lines = [line for line in EPILOG.splitlines() if re.search(rf"--mode {name}( |$)", line)]
    if command.name == "train":
        lines = [line for line in EPILOG.splitlines() if CALLED in line and "--mode" not in line]
    section = ["examples:", *lines, ""] if lines else []
    return "\n".join([*section, "--help without --mode explains all modes and flags."])


def _normalized(word: str, flags: Iterable[str]) -> str:
    """A word with the spelling of this program, where flags may have - for _ and `color`, and the home folder for ~."""
    name, equals, value = word.partition("=")
    if name.startswith("--"):
        spellings = {flag.replace("-", "_"): flag for flag in flags}
        name = spellings.get(name.replace("-", "_").replace("color", "colour"), name)
    return f"{name}={from_home(value)}" if equals else from_home(name)


def _argument_hint(unknown: Sequence[str], flags: Collection[str]) -> str:
    """The suggestion for the first unknown argument: the key of that name, else the most similar flag.

    A value that follows it, or is part of it, is repeated in the suggested command.
    """
    name, equals, value = unknown[0].partition("=")
    if equals and "." in name and not name.startswith("-"):
        return f"; each key needs its own --set: --set {unknown[0]}"
    if not name.startswith("-"):
        hint = f"; did you mean --mode {name}?" if name in MODE_NAMES else nearest(name, (*flags, *MODE_NAMES))
        return hint if hint.startswith("; did") else nearest(name, MODE_NAMES)
    if not equals and len(unknown) > 1 and not unknown[1].startswith("-"):
        value = unknown[1]
    from models.conf import known_leaves

    if key := key_meant(name, known_leaves()):
        return f"; did you mean --set {key}={value or 'VALUE'}?"
    return nearest(name, flags)
