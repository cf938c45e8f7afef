"""Kill a preparation again and again with SIGKILL, and see that the next call always goes on.

    python tests/kill_prepare.py [--kills 30] [--seed 0] [--folder DIR]

Photographs of a rendered corner are prepared. Each life is killed at a random moment of what a whole one takes, and the
next one goes on in what it left, or starts from nothing; a finished scene is replaced, or loses its files. After every
kill a scene that has its camera file must be whole. At the end a life that is not disturbed must finish, with the true
cameras. Exit status 1 where something does not hold.

Each life is a fork of a process that has loaded the program, so that a kill costs no start.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import compare_cameras
import cv2
import rendered_photographs

from data.config import DatasetConfig
from data.errors import UserError
from data.prepare.pipeline import FINISHED, PRODUCTS, WORK, Request, prepare
from data.prepare.products import CAMERA_FILE
from data.prepare.steps import remove
from data.scenes.load import load_scene

N_VIEWS = 4
FRESH = 0.4  # of the lives start from nothing, wherever the one before was killed
MOST_DEGREES = 0.5  # between a camera and the true one, as tests/test_prepare.py asks
STEPS = ("photographs", "features", "matches", "cameras", FINISHED)


@dataclass(frozen=True)
class Outcome:
    """What was seen over all lives."""

    kills: int
    finished: int  # lives that were over before their kill
    stopped_in: dict[str, int]  # step -> kills within it
    faults: tuple[str, ...]  # sentences; () where everything holds


def live(folder: Path, overwrite: bool) -> int:
    """Start a life in a forked process; returns its number. Its status is 0 where the scene is ready."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        with open(folder / "stderr", "ab") as errors:
            os.dup2(errors.fileno(), 2)
        prepare(Request(folder / "photos", folder / "scene", 6, overwrite=overwrite), str)
        status = 0
    except UserError as error:
        os.write(2, f"{error}\n".encode())
        status = 2
    finally:
        os._exit(status)


def stopped_in(work: Path) -> str:
    """The step that was begun and not finished; "" where there is none."""
    stamps = {name: work / f"{name}.json" for name in STEPS}
    texts = {name: path.read_text() for name, path in stamps.items() if path.is_file()}
    return next((name for name, text in texts.items() if '"result"' not in text), "")


def fault_of(folder: Path) -> list[str]:
    """A sentence where there is a scene and it is not whole."""
    scene = folder / "scene"
    if not (scene / CAMERA_FILE).exists():
        return []
    try:
        loaded = load_scene(DatasetConfig(str(scene), CAMERA_FILE, CAMERA_FILE))
    except UserError as error:
        return [str(error)]
    degrees, _ = compare_cameras.compare(rendered_photographs.poses(N_VIEWS), compare_cameras.poses_of(scene))
    wrong = loaded.n_views != N_VIEWS or loaded.points is None or degrees.max() > MOST_DEGREES
    return [f"{loaded.n_views} views, {degrees.max():.2f} degrees off"] if wrong else []


def start_over(scene: Path, generator: random.Random) -> bool:
    """What a finished scene becomes before the next life; returns whether that is to overwrite."""
    if not (scene / CAMERA_FILE).exists():
        return False
    choice = generator.choice(["nothing", "work", "replace"])
    for name in PRODUCTS if choice != "replace" else ():
        remove(scene / name)
    if choice == "nothing":
        remove(scene / WORK)
    return choice == "replace"


def kill_once(folder: Path, overwrite: bool, seconds: float) -> tuple[int, float]:
    """Start a life and kill it after `seconds`, if it is not over then; its status, and how long it lasted."""
    child, begin = live(folder, overwrite), time.monotonic()
    while time.monotonic() - begin < seconds:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return os.waitstatus_to_exitcode(status), time.monotonic() - begin
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), time.monotonic() - begin


def torture(folder: Path, kills: int, seed: int) -> Outcome:
    """Kill preparations in `folder` that many times, then let one end."""
    generator, faults, finished, seen = random.Random(seed), [], 0, dict.fromkeys(STEPS, 0)
    rendered_photographs.write_photographs(folder / "photos", N_VIEWS)
    begin, overwrite = time.monotonic(), False
    whole = os.waitstatus_to_exitcode(os.waitpid(live(folder, False), 0)[1])
    seconds = time.monotonic() - begin
    faults += [f"the undisturbed life ended with status {whole}"] if whole else fault_of(folder)
    number = 0
    while number < kills and finished < 10 * kills:
        is_fresh = generator.random() < FRESH  # so that every step has its kills
        if is_fresh:
            remove(folder / "scene")
        overwrite = start_over(folder / "scene", generator) or (overwrite and generator.random() < 0.5)
        status, lasted = kill_once(folder, overwrite, generator.uniform(0.0, seconds))
        finished += status == 0
        number += status != 0
        if status == 0 and is_fresh:  # the machine is less busy than before
            seconds = lasted
        if status not in (0, -signal.SIGKILL):
            faults.append(f"kill {number}: the life before it ended with status {status}")
        step = stopped_in(folder / "scene" / WORK)
        if step and status:
            seen[step] += 1
        faults += [f"kill {number}: {fault}" for fault in fault_of(folder)]
    status = os.waitstatus_to_exitcode(os.waitpid(live(folder, overwrite), 0)[1])
    faults += [f"the last life ended with status {status}"] if status else fault_of(folder)
    left = [path for path in (folder / "scene").rglob(".*") if path.is_file()]
    faults += [f"{path.relative_to(folder)} was left" for path in left if path.parent == folder / "scene"]
    return Outcome(kills, finished, seen, tuple(faults))


def main() -> int:
    """Kill preparations repeatedly and report the result; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the scene is kept (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cv2.setNumThreads(1)  # threads do not survive a fork
        outcome = torture(folder, options.kills, options.seed)
        if outcome.faults and (folder / "stderr").is_file():
            sys.stderr.write((folder / "stderr").read_text())
    within = ", ".join(f"{count} in {name}" for name, count in outcome.stopped_in.items() if count)
    print(f"{outcome.kills} kills ({within}; {outcome.finished} lives were over before): {len(outcome.faults)} faults")
    for fault in outcome.faults[:20]:
        print(fault)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
