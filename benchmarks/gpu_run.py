"""Run the stages of benchmarks/gpu.sh, which exports the variables that are read here.

Each stage ends at its limit or at that of the run, whichever comes first, and a failed stage does not stop the next.
Stages that start together share the CPUs; on a GPU each but the first has a compile cache of its own, because Jittor
locks its cache for as long as it compiles.
"""

from __future__ import annotations

import csv
import fcntl
import io
import itertools
import math
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from benchmarks import gpu_report
from benchmarks.gpu_stages import ALWAYS, FIRST, REST, Place, Stage, place_of, runs, stages
from data.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"cuda": 600, "cpu": 7200}  # seconds of a run on a device
REPORT = 15  # seconds kept for the last report
GRACE = 10  # seconds that an interrupted stage has to end: a training saves its state
LEAST = 2  # a stage is not started for less
PAUSE = 0.05  # between two looks at the running stages
MOST_FILES = 8  # in OUT
MOST_LOG = 2**22  # bytes of a log that are kept: half from its beginning, half from its end
LINES_SHOWN = 12
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AT_LIMIT, ABSENT, NOT_STARTED, STOPPED = "124", "127", "not started", "stopped"


class StopError(Exception):
    """A signal asks the run to end."""


@dataclass(frozen=True, eq=False)
class Running:
    """A started stage; its process leads a group of its own."""

    stage: Stage
    limit: float
    begin: float
    process: subprocess.Popen[bytes]


class Run:
    """A run: its folders, its time, and what became of its stages."""

    def __init__(self, out: Path, work: Path, limit: float, grace: float) -> None:
        """`limit`, `grace`: seconds of the whole run, and those that an interrupted stage has to save its state."""
        self.out, self.work, self.grace = out, work, grace
        self.end = time.monotonic() + limit - min(REPORT, limit / 4)
        self.rows: list[tuple[str, str, int, int]] = []
        self.running: list[Running] = []
        for folder in (self.logs, runs(work)):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def logs(self) -> Path:
        """The folder of the complete logs."""
        return self.work / "logs"

    def together(self, group: Sequence[Stage], environments: Sequence[dict[str, str]]) -> None:
        """Run stages at the same time, and report what is known afterwards."""
        for stage, environment in zip(group, environments, strict=True):
            self._start(stage, environment)
        while self.running:
            time.sleep(PAUSE)
            self._end({one: status for one in self.running if (status := _status(one))})
        self.report()

    def _start(self, stage: Stage, environment: dict[str, str]) -> None:
        now = time.monotonic()
        limit = min(stage.limit, self.end - now - self.grace)
        if limit < LEAST:
            self.rows.append((stage.name, NOT_STARTED, 0, stage.limit))
            return
        _say(f"=== {stage.name} (at most {limit:.0f} s)")
        with open(self.logs / f"{stage.name}.log", "wb") as log:
            try:
                process = subprocess.Popen(
                    stage.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=ROOT,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"error: {stage.command[0]} cannot be run: {error.strerror}\n".encode())
                self.rows.append((stage.name, ABSENT, 0, stage.limit))
                return
        self.running.append(Running(stage, limit, now, process))

    def _end(self, statuses: Mapping[Running, str]) -> None:
        """Interrupt what is left of the groups of these stages, kill it where that does not help, and record them."""
        for one in statuses:
            _signal(one, signal.SIGINT)
        end = time.monotonic() + self.grace
        while any(map(_is_alive, statuses)) and time.monotonic() < end:
            time.sleep(PAUSE)
        for one, status in statuses.items():
            _signal(one, signal.SIGKILL)
            one.process.wait()
            self.running.remove(one)
            self.rows.append((one.stage.name, status, round(time.monotonic() - one.begin), round(one.limit)))
            lines = (self.logs / f"{one.stage.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
            _say("\n".join([f"--- {one.stage.name}: status {status}", *lines[-LINES_SHOWN:]]))

    def stop(self) -> None:
        """End all that runs."""
        self._end(dict.fromkeys(self.running, STOPPED))

    def report(self) -> None:
        """Write the files of OUT: the table, the values, all logs and raw values, and the images of the trainings."""
        with open(self.work / "stages.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(self.rows)
        names = [row[0] for row in self.rows]
        gpu_report.main(self.work, self.out)
        (self.out / "raw.tar.gz").write_bytes(self._raw(names))
        for name in names:
            image = runs(self.work) / name / "report" / "report.png"
            if image.is_file() and len(list(self.out.glob("*.*"))) < MOST_FILES:
                (self.out / f"{name}.png").write_bytes(image.read_bytes())

    def _raw(self, names: Sequence[str]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
            for name in names:
                left = (f"logs/{name}.log", f"{name}.json", f"{name}.csv", f"runs/{name}/report/metrics.json")
                for path in filter(Path.is_file, map(self.work.joinpath, left)):
                    self._add(archive, path)
        return buffer.getvalue()

    def _add(self, archive: tarfile.TarFile, path: Path) -> None:
        content = path.read_bytes()
        if len(content) > MOST_LOG:
            content = content[: MOST_LOG // 2] + b"\n[...]\n" + content[-MOST_LOG // 2 :]
        entry = tarfile.TarInfo(str(path.relative_to(self.work)))
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))


def _status(one: Running) -> str:
    """The status of a stage that has ended or is at its limit, "" while it may run."""
    status = one.process.poll()
    if status is None:
        return AT_LIMIT if time.monotonic() > one.begin + one.limit else ""
    return str(status if status >= 0 else 128 - status)


def _signal(one: Running, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(one.process.pid, number)


def _is_alive(one: Running) -> bool:
    """Whether any process of the group is left; its leader is collected first, or it would count."""
    one.process.poll()
    try:
        os.killpg(one.process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _say(text: str) -> None:
    """To the terminal, which may be closed."""
    with suppress(OSError):
        print(text, flush=True)


def chosen(all_stages: Sequence[Stage], asked: str) -> Iterator[list[Stage]]:
    """The groups of stages of a call: `asked` is "", "rest", or names; a training comes with its evaluation."""
    group: list[Stage] = []
    for stage in all_stages:
        if not {ALWAYS, *(asked or FIRST).split()} & {stage.call, stage.name.removesuffix("_train")}:
            continue
        if group and not stage.beside:
            yield group
            group = []
        group.append(stage)
    yield group


def _environments(group: Sequence[Stage], device: str, work: Path) -> list[dict[str, str]]:
    """The variables of each stage."""
    site = work / "site"
    path = [str(ROOT / "tests"), *([str(site)] if (site / "jittor").is_dir() else [])]
    common = os.environ | {"PYTHONPATH": os.pathsep.join(reversed(path)), "PYTHONUNBUFFERED": "1"}
    if (site / "python-config").is_file():
        common["NEUS_PYTHON_CONFIG"] = str(site / "python-config")
    is_shared = device != "cuda"
    return [common | ({} if is_shared or i == 0 else {"cache_name": f"own-{s.name}"}) for i, s in enumerate(group)]


def _lock(work: Path) -> bool:
    """Lock the folder until this process ends; returns whether no other run has."""
    try:
        fcntl.flock(os.open(work / "lock", os.O_WRONLY | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _set_aside(out: Path, work: Path) -> None:
    """Move the results of an earlier run into a subfolder, and forget its raw values."""
    found = [path for path in out.iterdir() if not path.name.startswith("earlier-")]
    if found:
        number = next(number for number in itertools.count(1) if not (out / f"earlier-{number}").exists())
        (out / f"earlier-{number}").mkdir()
        for path in found:
            path.rename(out / f"earlier-{number}" / path.name)
        _say(f"the results of an earlier run were moved to {out}/earlier-{number}")
    for path in [*work.glob("*.json"), *work.glob("*.csv"), *runs(work).glob("*/report/*")]:
        path.unlink()


def _prepared(place: Place, out: Path, environment: Mapping[str, str]) -> Run:
    """A run with empty folders that no other run uses; raises UserError if that cannot be."""
    seconds = {"LIMIT": LIMITS[place.device], "GRACE": GRACE}
    try:
        limit, grace = (float(environment.get(name) or value) for name, value in seconds.items())
    except ValueError:
        limit = grace = math.nan
    if not (0 < limit < math.inf and 0 <= grace < math.inf):
        raise UserError("LIMIT and GRACE are numbers of seconds: set them to such, or unset them")
    try:
        for folder in (out, place.work):
            folder.mkdir(parents=True, exist_ok=True)
        if not _lock(place.work):
            raise UserError(f"another call uses {place.work}: wait for it, or set OUT and WORK to other folders")
        _set_aside(out, place.work)
        return Run(out, place.work, limit, grace)
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be used ({error.strerror}): set OUT and WORK to other folders"
        ) from None


def _stop(number: int, frame: FrameType | None) -> None:
    """Of several signals the first counts."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise StopError(number)


def main(environment: Mapping[str, str]) -> int:
    """Run the stages that the environment asks for; returns the exit status. Raises UserError if it cannot begin."""
    place, out, asked = place_of(environment), Path(environment["OUT"]), environment.get("STAGES", "")
    listed = stages(place)
    if unknown := set(asked.split()) - {FIRST, REST, *(stage.name for stage in listed)}:
        raise UserError(f"STAGES: there is no stage {min(unknown)}: see benchmarks/gpu_stages.py")
    run = _prepared(place, out, environment)
    for each in SIGNALS:
        signal.signal(each, _stop)
    try:
        for group in chosen(listed, asked):
            run.together(group, _environments(group, place.device, place.work))
            packages = next((status for name, status, *_ in run.rows if name == "packages"), "0")
            if packages in (AT_LIMIT, NOT_STARTED):
                _say("error: there was no time to look for the packages: set a longer LIMIT")
                return 1
            if packages != "0":
                _say("error: packages are missing: install those listed above")
                return 1
    except StopError as error:
        _say(f"stopped by {signal.Signals(error.args[0]).name}: one moment")
        run.stop()
        run.report()
        _say(f"the results so far are in {out}")
        return 128 + int(error.args[0])
    _say((out / "results.md").read_text(encoding="utf-8"))
    if place.is_rehearsal:
        _say("a test without a GPU: the figures above are meaningless")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(os.environ))
    except UserError as unusable:
        print(f"error: {unusable}", file=sys.stderr)
        sys.exit(2)
