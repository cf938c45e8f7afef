"""Run the stages of benchmarks/gpu.sh, which exports the variables that are read here.

Each stage ends at its limit or at that of the run, whichever comes first, and a failed stage does not stop the next.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self

from benchmarks import gpu_report
from benchmarks.report import ROOT
from data.errors import UserError

ALWAYS, FIRST, REST = "always", "first", "rest"  # in every call, in the first, in the second
# Tests of the operations in their native form and against the reference; none simulates another machine.
TESTS = (
    *("cuda_forms", "grid", "march", "packed", "hits", "patches", "nerf", "fields", "native_sampling", "splat_wander"),
    *("guard_update", "optimizer", "volrend", "sampling", "renderer", "finite"),
)
RESUMES = ("training_runs", "nerf_runs", "fast_neus", "gaussians")  # one per model type: a repeated run, a resumed one
GOLDEN = ("tests/parity.py", "tests/golden/wmask_small.npz", "tests/golden/womask_small.npz")
REDUCED = ("train.end_iter=8", "train.batch_size=64", "train.mesh_resolution=32", "train.val_freq=8")
REDUCED += ("train.val_mesh_freq=0", "train.save_freq=8", "train.validate_resolution_level=8")
PATIENCE = 10  # factor of the limits without a GPU
REPORT, GRACE = 15, 10  # seconds kept for the last report, and for an interrupted stage to save its state
LEAST, PAUSE = 2, 0.05  # seconds: a stage is not started for less; between two looks at the running stages
MOST_FILES, LINES_SHOWN = 8, 12
AT_LIMIT, NOT_STARTED, STOPPED = "124", "not started", "stopped"


class StopError(Exception):
    """A signal asks the run to end."""


@dataclass(frozen=True)
class Stage:
    """A command with a limit in seconds."""

    name: str
    limit: int
    command: tuple[str, ...]
    call: str = FIRST
    beside: bool = False  # starts together with the stage before it


@dataclass(frozen=True)
class Place:
    """What the commands depend on, as benchmarks/gpu.sh exports it."""

    device: str  # "cuda", or "cpu" to test all stages at small sizes
    python: str
    work: Path
    peer: str  # a checkout of the published code, or ""

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        """The place that the variables describe."""
        return cls(variables["DEVICE"], variables["PYTHON"], Path(variables["WORK"]), variables.get("PEER", ""))

    def steps(self, name: str, *arguments: str) -> tuple[str, ...]:
        """Steps, measured into a file."""
        sizes = ("--rehearse",) if self.device == "cpu" else ()
        out = str(self.work / f"{name}.json")
        return self.python, "-m", "benchmarks.gpu_steps", out, "--device", self.device, *sizes, *arguments

    def on_device(self, *arguments: str) -> tuple[str, ...]:
        """A Python program on the device."""
        return self.python, "-m", "benchmarks.on_device", self.device, *arguments

    def tests(self, names: tuple[str, ...], *arguments: str) -> tuple[str, ...]:
        """The tests of files, with what libraries print: the report of a crash would be lost with the rest."""
        files = (f"tests/test_{name}.py" for name in names)
        return self.on_device("pytest", "-vv", "-s", "--tb=short", *files, *arguments)

    def trained(self, name: str, conf: str, limit: int, call: str, *settings: str) -> list[Stage]:
        """A training of at most `limit` seconds, the start included, and the evaluation of what it reached."""
        chosen = (f"general.base_exp_dir={self.work / 'runs' / name}", *settings)
        chosen += REDUCED if self.device == "cpu" else ()
        given = ("--conf", f"confs/{conf}.conf", *(word for setting in chosen for word in ("--set", setting)))
        program = (self.python, "exp_runner.py", "--device", self.device, "--mode")
        evaluate = ("evaluate", "--resolution", "32" if self.device == "cpu" else "256", *given)
        train = Stage(f"{name}_train", limit, (*program, "train", "--overwrite", *given), call)
        return [train, Stage(name, 60, (*program, *evaluate), call)]


def stages(place: Place) -> list[Stage]:
    """All stages on a device, in order; all limits are longer without a GPU."""
    script, kernels = ("bash", "benchmarks/gpu.sh"), (place.python, "-m", "benchmarks.gpu_kernels")
    kernels += (place.device, str(place.work))
    bunny, lego = (place.work / "site" / "scenes" / name for name in ("bunny", "lego"))
    reference = (f"dataset.data_dir={bunny}", "dataset.test_every=8", f"dataset.reference_mesh={bunny / 'gt_unit.ply'}")
    listed = [
        *(Stage(name, 60, (*script, name), ALWAYS) for name in ("facts", "unpack", "packages")),
        Stage("compile", 300, place.steps("compile", "--once")),
        Stage("build", 260, (*kernels, "--build"), beside=True),
        Stage("kernels", 60, kernels),
        Stage("steps", 90, place.steps("steps")),
        *([Stage("peer", 60, place.steps("peer", "--peer", place.peer))] if place.peer else []),
        Stage("trace", 30, place.steps("trace", "--trace")),
        Stage("trace_tf32", 30, place.steps("trace_tf32", "--trace", "--tf32")),
        *place.trained("bunny", "fast", 150, FIRST, *reference),
        Stage("fast", 60, place.steps("fast", "--fast")),
        Stage("parity", 300, place.on_device(*GOLDEN), REST),
        Stage("splats", 300, place.tests(("splats",)), REST),
        *place.trained("bunny_full", "fast", 200, REST, *reference),
        *place.trained("lego", "fast_nerf", 300, REST, f"dataset.data_dir={lego}"),
        *place.trained("gaussians", "gaussians", 240, REST, f"dataset.data_dir={lego}"),
        Stage("doctor", 600, (place.python, "exp_runner.py", "--device", place.device, "--mode", "doctor"), REST),
        Stage("tests", 600, place.tests(("march",) if place.device == "cpu" else TESTS), REST),
        Stage("resume", 600, place.tests(RESUMES, "-k", "bit_for_bit or equal_six"), REST),
        *place.trained("demo", "demo", 200, REST),
        Stage("parity_tf32", 300, place.on_device("--tf32", *GOLDEN), REST),
        *place.trained("demo_tf32", "demo", 200, REST, "train.tf32=true"),
    ]
    factor = PATIENCE if place.device == "cpu" else 1
    return [Stage(**(vars(stage) | {"limit": factor * stage.limit})) for stage in listed]


def chosen(all_stages: list[Stage], asked: str) -> list[list[Stage]]:
    """The groups of stages of a call: `asked` is "", "rest", or names; a training comes with its evaluation."""
    names = {ALWAYS, *(asked or FIRST).split()}
    if unknown := names - {ALWAYS, FIRST, REST, *(stage.name for stage in all_stages)}:
        raise UserError(f"STAGES: there is no stage {min(unknown)}: see benchmarks/gpu_run.py")
    groups: list[list[Stage]] = []
    for stage in all_stages:
        if names & {stage.call, stage.name.removesuffix("_train")}:
            groups = [*groups[:-1], [*groups[-1], stage]] if stage.beside and groups else [*groups, [stage]]
    return groups


class Run:
    """A run: its folders, its time, and what became of its stages."""

    def __init__(self, out: Path, work: Path, limit: float, environment: Mapping[str, str]) -> None:
        """`limit`: seconds of the whole run."""
        self.out, self.work, self.environment = out, work, environment
        self.end = time.monotonic() + limit - min(REPORT, limit / 4)
        self.grace = min(GRACE, limit / 8)
        self.rows: list[tuple[str, str, int, int]] = []
        self.running: dict[Stage, tuple[float, float, subprocess.Popen[bytes]]] = {}  # begin, limit

    def together(self, group: list[Stage]) -> None:
        """Run stages at the same time, and report what is known afterwards."""
        for stage in group:
            now = time.monotonic()
            limit = min(stage.limit, self.end - now - self.grace)
            if limit < LEAST:
                self.rows.append((stage.name, NOT_STARTED, 0, stage.limit))
                continue
            _say(f"=== {stage.name} (at most {limit:.0f} s)")
            with open(self.work / "logs" / f"{stage.name}.log", "wb") as log:
                options = {"cwd": ROOT, "env": self.environment, "stdin": subprocess.DEVNULL, "start_new_session": True}
                process = subprocess.Popen(stage.command, stdout=log, stderr=subprocess.STDOUT, **options)
            self.running[stage] = (now, limit, process)
        while self.running:
            time.sleep(PAUSE)
            for stage, (begin, limit, process) in list(self.running.items()):
                if (status := process.poll()) is not None:
                    self._end(stage, str(status if status >= 0 else 128 - status))
                elif time.monotonic() > begin + limit:
                    self._end(stage, AT_LIMIT)
        self.report()

    def _end(self, stage: Stage, status: str) -> None:
        """Interrupt what is left of the group of a stage, kill it where that does not help, and record it."""
        begin, limit, process = self.running.pop(stage)
        end = time.monotonic() + self.grace
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
            while time.monotonic() < end:
                process.poll()  # collects the leader, which would count as alive
                os.killpg(process.pid, 0)
                time.sleep(PAUSE)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.rows.append((stage.name, status, round(time.monotonic() - begin), round(limit)))
        lines = (self.work / "logs" / f"{stage.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        _say("\n".join([f"--- {stage.name}: status {status}", *lines[-LINES_SHOWN:]]))

    def stop(self) -> None:
        """End all that runs."""
        for stage in list(self.running):
            self._end(stage, STOPPED)

    def report(self) -> None:
        """Write the files of OUT: the tables, the values, all logs, and the images of the trainings."""
        gpu_report.write(self.work, self.out, self.rows)
        shutil.make_archive(str(self.out / "logs"), "gztar", self.work, "logs")
        for name, status, *_ in self.rows:
            image = self.work / "runs" / name / "report" / "report.png"
            if status == "0" and image.is_file() and len(list(self.out.glob("*.*"))) < MOST_FILES:
                shutil.copyfile(image, self.out / f"{name}.png")


def _say(text: str) -> None:
    """To the terminal, which may be closed."""
    with suppress(OSError):
        print(text, flush=True)


def _stop(number: int, frame: FrameType | None) -> None:
    """Of several signals the first counts."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise StopError(number)


def _prepare(out: Path, work: Path) -> None:
    """Move the results of an earlier run into a subfolder of `out`, and forget its logs.

    Raises UserError if another run uses the folders.
    """
    work.mkdir(parents=True, exist_ok=True)
    try:  # locked until this process ends
        fcntl.flock(os.open(work / "lock", os.O_WRONLY | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"another call uses {work}: wait for it, or set OUT and WORK to other folders") from None
    shutil.rmtree(work / "logs", ignore_errors=True)
    (work / "logs").mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    found = [path for path in out.iterdir() if not path.name.startswith("earlier-")]
    if found:
        earlier = next(out / f"earlier-{i}" for i in itertools.count(1) if not (out / f"earlier-{i}").exists())
        earlier.mkdir()
        for path in found:
            path.rename(earlier / path.name)
        _say(f"the results of an earlier run were moved to {earlier}")


def main(variables: Mapping[str, str]) -> int:
    """Run the stages that the variables ask for; returns the exit status. Raises UserError if it cannot begin."""
    place, out = Place.of(variables), Path(variables["OUT"])
    groups = chosen(stages(place), variables.get("STAGES", ""))
    limit = variables.get("LIMIT") or ("600" if place.device == "cuda" else "7200")
    if not limit.isdigit() or not int(limit):
        raise UserError(f"LIMIT={limit}: must be a number of seconds")
    _prepare(out, place.work)
    site = place.work / "site"
    path = [str(site), str(ROOT / "tests")]
    environment = dict(variables) | {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
    run = Run(out, place.work, int(limit), environment)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _stop)
    try:
        for group in groups:
            if (site / "python-config").is_file():  # written by the stage `unpack`
                environment["NEUS_PYTHON_CONFIG"] = str(site / "python-config")
            run.together(group)
            if run.rows[-1][:1] == ("packages",) and run.rows[-1][1] != "0":
                _say("error: the packages cannot be used, see above")
                return 1
    except StopError as error:
        run.stop()
        run.report()
        _say(f"stopped by {signal.Signals(error.args[0]).name}: the results so far are in {out}")
        return 128 + int(error.args[0])
    _say((out / "results.md").read_text(encoding="utf-8"))
    if place.device == "cpu":
        _say("a test without a GPU: the figures above are meaningless")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(os.environ))
    except UserError as unusable:
        print(f"error: {unusable}", file=sys.stderr)
        sys.exit(2)
