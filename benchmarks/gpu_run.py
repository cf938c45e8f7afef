"""Run the stages of benchmarks/gpu.sh, which exports the variables that are read here.

Each stage ends at its limit or at that of the run, whichever comes first. A failed stage does not stop the next, but a
wrong result of the networks ends the run: no figure of a wrong program is measured.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Self

from benchmarks import gpu_report
from benchmarks.report import ROOT
from data.errors import UserError, listed

ALWAYS, FIRST = 0, (("facts", 5), ("unpack", 12), ("packages", 8))  # the stages of both calls, with their limits
# Seconds of each call with its last report; 20 less than whoever lends the machine allows, who counts its start, too.
LIMITS = {1: 270, 2: 400}
REHEARSAL = 7200
ONLY_STEPS = ("train.val_freq=0", "train.val_mesh_freq=0")  # nothing but steps, and the mesh at the end
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
    call: int = 1
    beside: bool = False  # starts together with the stage before it
    decides: bool = False  # whether the results of the networks are right


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
        packed = Path(variables["PACK"], "peer")
        peer = variables.get("PEER") or (str(packed) if packed.is_dir() else "")
        return cls(variables["DEVICE"], variables["PYTHON"], Path(variables["WORK"]), peer)

    def steps(self, name: str, *arguments: str) -> tuple[str, ...]:
        """Steps, measured into a file."""
        sizes = ("--rehearse",) if self.device == "cpu" else ()
        out = str(self.work / f"{name}.json")
        return self.python, "-m", "benchmarks.gpu_steps", out, "--device", self.device, *sizes, *arguments

    def on_device(self, *arguments: str) -> tuple[str, ...]:
        """A Python program on the device."""
        return self.python, "-m", "benchmarks.on_device", self.device, *arguments

    def parity(self, call: int, recipe: str) -> Stage:
        """The test of a recipe against the published code, from its file."""
        command = self.on_device("tests/parity.py", f"tests/golden/{recipe}_small.npz")
        return Stage(f"parity_{recipe}", 40, command, call, decides=True)

    def trained(self, name: str, limits: tuple[int, int], call: int, *settings: str) -> list[Stage]:
        """A training of confs/fast.conf, and the evaluation of what it reached; `limits` of both, starts included."""
        chosen = (f"general.base_exp_dir={self.work / 'runs' / name}", *settings)
        chosen += REDUCED if self.device == "cpu" else ()
        given = ("--conf", "confs/fast.conf", *(word for setting in chosen for word in ("--set", setting)))
        program = (self.python, "exp_runner.py", "--device", self.device, "--mode")
        evaluate = ("evaluate", "--resolution", "32" if self.device == "cpu" else "256", *given)
        train = Stage(f"{name}_train", limits[0], (*program, "train", "--overwrite", *given), call)
        return [train, Stage(name, limits[1], (*program, *evaluate), call)]


def stages(place: Place) -> list[Stage]:
    """All stages on a device, in order; all limits are longer without a GPU."""
    script = ("bash", "benchmarks/gpu.sh")
    bunny, dtu = (f"dataset.data_dir={place.work / 'site' / 'scenes' / name}" for name in ("bunny", "dtu_scan65"))
    reference = f"dataset.reference_mesh={place.work / 'site' / 'scenes' / 'bunny' / 'gt_unit.ply'}"
    listed = [
        *(Stage(name, limit, (*script, name), ALWAYS) for name, limit in FIRST),
        Stage("tiles", 80, (*script, "tiles"), decides=True),
        Stage("compile", 95, place.steps("compile", "--once"), beside=True),
        place.parity(1, "wmask"),
        Stage("steps", 40, place.steps("steps")),
        *([Stage("peer", 35, place.steps("peer", "--peer", place.peer))] if place.peer else []),
        Stage("trace", 20, place.steps("trace", "--trace")),
        place.parity(2, "womask"),
        Stage("steps_womask", 60, place.steps("steps_womask", "--recipe", "womask"), 2),
        *place.trained("bunny", (75, 25), 2, bunny, "dataset.test_every=8", reference, *ONLY_STEPS),
        Stage("fast", 35, place.steps("fast", "--fast"), 2),
        Stage("splats", 50, place.on_device("pytest", "-vv", "-s", "--tb=short", "tests/test_splats.py"), 2),
        *place.trained("dtu", (45, 15), 2, dtu, "dataset.test_every=8", "train.mask_weight=0", *ONLY_STEPS),
        Stage("cache", 15, (*script, "cache"), 2),
    ]
    factor = PATIENCE if place.device == "cpu" else 1
    return [replace(stage, limit=factor * stage.limit) for stage in listed]


def sanitizers(place: Place) -> list[Stage]:
    """What finds races and wrong addresses, after a wrong result."""
    folder, tools = str(place.work / "site" / "tiles"), ("racecheck", "memcheck")
    program = (place.python, "-m", "benchmarks.gpu_tiles", "--run", folder, "--device", place.device, "--quick")
    return [Stage(tool, 40, ("compute-sanitizer", "--tool", tool, *program)) for tool in tools]


def chosen(all_stages: list[Stage], call: int, names: Sequence[str]) -> list[list[Stage]]:
    """The groups of stages of a call, or those with these names; a training comes with its evaluation."""
    if unknown := {*names} - {stage.name for stage in all_stages}:
        raise UserError(f"STAGES: there is no stage {min(unknown)}: see benchmarks/gpu_run.py")
    groups: list[list[Stage]] = []
    for stage in all_stages:
        is_named = stage.name.removesuffix("_train") in names if names else stage.call == call
        if is_named or stage.call == ALWAYS:
            groups = [*groups[:-1], [*groups[-1], stage]] if stage.beside and groups else [*groups, [stage]]
    return groups


class Run:
    """A run: its folders, its time, and what became of its stages."""

    def __init__(self, out: Path, work: Path, limit: float, environment: dict[str, str]) -> None:
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
                command = ("/usr/bin/env", *stage.command)  # which says so if there is no such program
                process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options)
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
    call = {"": 1, "1": 1, "2": 2}.get(variables.get("CALL", ""))
    if call is None:
        raise UserError(f"CALL={variables['CALL']}: must be 1 or 2")
    groups = chosen(stages(place), call, variables.get("STAGES", "").split())
    limit = variables.get("LIMIT") or str(LIMITS[call] if place.device == "cuda" else REHEARSAL)
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
        status = _run(run, groups, place)
    except StopError as error:
        run.stop()
        run.report()
        _say(f"stopped by {signal.Signals(error.args[0]).name}: the results so far are in {out}")
        return 128 + int(error.args[0])
    _say((out / "results.md").read_text(encoding="utf-8"))
    if place.device == "cpu":
        _say("a test without a GPU: the figures above are meaningless")
    return status


def _run(run: Run, groups: list[list[Stage]], place: Place) -> int:
    """Run the groups until the packages cannot be used or the networks are wrong; returns the exit status."""
    wrong = set[str]()
    for group in groups:
        config = place.work / "site" / "python-config"
        if config.is_file():  # written by the stage `unpack`
            run.environment["NEUS_PYTHON_CONFIG"] = str(config)
        run.together(group)
        failed = {name for name, status, *_ in run.rows if status != "0"}
        if "packages" in failed:
            _say("error: the packages cannot be used, see above")
            return 1
        wrong |= {stage.name for stage in group if stage.decides and stage.name in failed}
        if wrong and group[0].name != "tiles":  # with wrong tiles, the parity says what else is wrong
            for stage in sanitizers(place):
                run.together([stage])
            _say(f"error: {listed(sorted(wrong))}: the networks are wrong, see the logs; no figures were measured")
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(os.environ))
    except UserError as unusable:
        print(f"error: {unusable}", file=sys.stderr)
        sys.exit(2)
