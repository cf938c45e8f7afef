"""`--mode train --cases A,B,C`: trains several scenes, each in its own process.

Under mpirun or srun each process takes its part of the list, and in a Slurm array each job. The training of a scene is
the same as with `--case`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from data.errors import UserError, crash_report, listed
from data.io.files import read_regular
from data.io.streams import complain, hush, say
from models.commands.command import EXIT_DONE, EXIT_FAILED, EXIT_OF_SIGNAL, Arguments, failed
from models.config.program import PROGRAM
from models.machine import ranks
from models.machine.ranks import joined

LISTS = (".txt", ".list", ".csv")  # suffixes of list files
DONE, NOT_BEGUN = "done", "not begun"


@dataclass(frozen=True)
class Outcome:
    """The result of a scene's training."""

    case: str
    state: str  # `done`, or the reason of the failure
    step: int = 0
    seconds: float = 0.0  # of training, over all its sessions
    psnr: str = "-"  # dB, of the last logged batch
    crash: tuple[str, ...] = ()  # lines that a training without a reason printed on stderr


def scenes_of(text: str) -> tuple[str, ...]:
    """The scenes in `A,B,C`, or in a file with one per line.

    Raises UserError for a missing file, no scene, a repeated one, and invalid names.
    """
    from models.config.hocon import check_case

    if os.path.isfile(text):
        try:
            lines = read_regular(text).decode("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--cases {text}: cannot be read ({error}); write one scene per line") from None
        entries = [line.partition("#")[0].strip() for line in lines]
    elif text.lower().endswith(LISTS) or (os.sep in text and "," not in text):
        what = "is not a file" if os.path.lexists(text) else "no such file"
        raise UserError(f"--cases {text}: {what}; write A,B,C or a file with one scene per line")
    else:
        entries = [word.strip() for word in text.split(",")]
    names = tuple(name for name in entries if name)
    if not names:
        raise UserError(f"--cases {text}: names no scene; write A,B,C or a file with one scene per line")
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UserError(f"--cases {text}: names {listed(twice)} twice; name each scene once")
    for name in names:
        check_case(name, f"--cases {text}:")
    return names


def check(values: argparse.Namespace) -> None:
    """Raises UserError for flags that exclude --cases."""
    for name in ("case", "checkpoint", "view") if values.cases is not None else ():
        if getattr(values, name):
            raise UserError(f"--cases, --{name}: the latter applies to a single scene; give only one of them")


def run_cases(arguments: Arguments) -> int:
    """Train all scenes; returns the exit status."""
    names = ranks.scenes_of_job(scenes_of(arguments.values.cases), os.environ)
    _require_folders(arguments, names)
    group, work, outcomes = joined(), _CaseTrainer(arguments), []
    hush(False)  # each process tells of its scenes
    for name in names[group.place.rank :: group.size]:
        if not work.stopped_by:
            outcomes.append(work.train(name))
    with group.until(lambda: work.stopped_by != 0):
        outcomes = sum(group.gather(outcomes) or (), [])
    hush(not group.is_writer)
    by_case = {outcome.case: outcome for outcome in outcomes}
    say(*table([by_case.get(name, Outcome(name, NOT_BEGUN)) for name in names]))
    if work.stopped_by:
        return EXIT_OF_SIGNAL + work.stopped_by
    group.close()
    wrong = [outcome.case for outcome in outcomes if outcome.state != DONE]
    return failed(f"{listed(wrong)} failed, see the table", EXIT_FAILED) if wrong else EXIT_DONE


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """The result table: a line for each scene, in the given order."""
    rows = [("scene", "steps", "minutes", "batch PSNR", "result")]
    rows += [(one.case, str(one.step), f"{one.seconds / 60:.1f}", one.psnr, one.state) for one in outcomes]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:4], widths[1:]), row[4]]) for row in rows]


def _require_folders(arguments: Arguments, names: Sequence[str]) -> None:
    """Raises UserError if the conf is invalid for a scene, or several scenes share a results folder."""
    from models.conf import load_config

    if arguments.conf is None:
        raise UserError("--cases: give a conf too, such as --conf confs/fast.conf")
    folders: dict[str, str] = {}
    for name in names:
        folder = load_config(arguments.conf, name, arguments.overrides).general.base_exp_dir
        if folder in folders:
            raise UserError(
                f"--cases: {folders[folder]} and {name} would both be written to {folder}; put CASE_NAME into "
                "general.base_exp_dir"
            )
        folders[folder] = name


class _CaseTrainer:
    """Trains scenes, one at a time; a signal stops the current training, which saves its state, and the queue."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self.stopped_by = 0  # the number of a signal
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, self._stop)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        """Forward the signal to the current training."""
        del frame
        self.stopped_by = signum
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signum)

    def train(self, case: str) -> Outcome:
        """Train one scene in a child process; the outcome has the last error that it printed."""
        say(f"{case}: training")
        environment = {  # without the variables of mpirun and srun
            name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "PRTE_"))
        }
        ranks.forget_ranks(environment)
        self._process = subprocess.Popen(
            self._command(case),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C reaches it only through `_stop`
            preexec_fn=partial(ranks.end_with_parent, signal.SIGTERM, os.getpid()) if sys.platform == "linux" else None,
        )
        _, err = self._process.communicate()
        outcome = self._outcome(case, *ending(self._process.returncode, err))
        say(f"{case}: {outcome.state}", *outcome.crash)
        return outcome

    def _command(self, case: str) -> list[str]:
        """The command line that trains one scene."""
        given, values = self._arguments, self._arguments.values
        flags = ["--conf", str(given.conf), "--case", case, "--device", given.device]
        flags += ["--gpu", str(ranks.own_gpu(given.gpu, os.environ))]
        flags += [f"--{name}" for name in ("is_continue", "overwrite") if getattr(values, name)]
        flags += ["--language", values.language] if values.language else []
        return [sys.executable, str(PROGRAM), *flags, *(word for one in given.overrides for word in ("--set", one))]

    def _outcome(self, case: str, state: str, crash: tuple[str, ...]) -> Outcome:
        """The outcome with steps, time and PSNR from the scene's results folder."""
        from models.checkpoints.folder import latest_checkpoint
        from models.conf import load_config
        from models.runs.logger import last_psnr

        folder = Path(load_config(self._arguments.conf or "", case, self._arguments.overrides).general.base_exp_dir)
        try:
            checkpoint = latest_checkpoint(folder / "checkpoints", complain)
        except UserError:
            checkpoint = None
        if checkpoint is None:
            return Outcome(case, state, crash=crash)
        return Outcome(
            case, state, checkpoint.step, float(checkpoint.state.get("seconds", 0.0)), last_psnr(folder), crash
        )


def ending(status: int, printed: str) -> tuple[str, tuple[str, ...]]:
    """State and crash report of a training from its exit status and stderr: the last error, or a report without one."""
    errors = [line.removeprefix("error: ") for line in printed.splitlines() if line.startswith("error: ")]
    if status == 0:
        return DONE, ()
    return (errors[-1], ()) if errors else (f"ended with status {status}", tuple(crash_report(printed)))
