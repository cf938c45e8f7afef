"""Kill a training again and again with SIGKILL, and see that nothing is lost.

    python tests/kill_harness.py [--kills 200] [--seed 0] [--keep 0] [--folder DIR]

A run of tiny networks writes a checkpoint every few steps. It is killed at a random moment, resumed, killed again.
After every kill each file with a checkpoint's name must be complete, and the newest must not be older than before. At
the end every checkpoint and every reported loss must equal those of a run that was never disturbed. With --keep N
(train.keep_checkpoints) few stay: the newest is looked at after each kill, and no more than N + 1 may be there. Exit
status 1 where something does not hold.

Each life is a fork of a process that has loaded the program and used none of it, so that a kill costs no start.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runs import contents, run

from models.checkpoints.ours import CheckpointError, load_checkpoint

SAVE_EVERY = 3
LONGEST_LIFE = 0.25  # s after the first sign of life; a checkpoint of these networks is written about every 30 ms
LEAST_STEPS = 60  # the undisturbed run goes at least this far
LOSS_LINE = re.compile(r" INFO step (\d+): (loss [\d.]+, PSNR [\d.]+, inv_s [\d.]+),")
Losses = dict[int, set[str]]


@dataclass(frozen=True)
class Outcome:
    """What was seen over all lives."""

    kills: int
    unfinished_writes: int  # kills that left a half-written temporary file: what the test is about
    steps: int  # reached in the end
    compared: int  # checkpoints that the undisturbed run has too
    faults: tuple[str, ...]  # sentences; () where everything holds


def settings(end: int, keep: int) -> tuple[str, ...]:
    """A tiny run of `end` steps, the learning rate of each step independent of `end`; `keep` checkpoints stay."""
    sizes = ("train.batch_size=16", "model.neus_renderer.n_importance=4", "train.learning_rate_alpha=1")
    never = ("train.val_freq=0", "train.val_mesh_freq=0", "train.warm_up_end=2")
    often = (f"train.save_freq={SAVE_EVERY}", "train.report_freq=1", f"train.keep_checkpoints={keep}")
    return (f"train.end_iter={end}", *often, *never, *sizes)


def live(folder: Path, end: int, keep: int, *flags: str) -> int:
    """Start a life in a forked process; returns its number."""
    child = os.fork()
    if child:
        return child
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    with open(folder.with_suffix(".stderr"), "ab") as errors:
        os.dup2(errors.fileno(), 2)
    status = 70
    try:
        status = run(folder, *flags, settings=settings(end, keep))
    finally:
        os._exit(status)


def losses(folder: Path) -> Losses:
    """Step -> the different texts reported for it; a last line that was cut is not read."""
    path, found = folder / "logs" / "train.log", {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        if match := LOSS_LINE.search(line):
            found.setdefault(int(match[1]), set()).add(match[2])
    return found


def checkpoints(folder: Path) -> list[Path]:
    """Files with a checkpoint's name, oldest first."""
    return sorted((folder / "checkpoints").glob("ckpt_*.safetensors"))


def kill_once(folder: Path, generator: random.Random, keep: int) -> None:
    """Resume, wait for a sign of life, then a random while, then SIGKILL."""
    size = (folder / "logs" / "train.log").stat().st_size if (folder / "logs" / "train.log").is_file() else 0
    child = live(folder, 10**6, keep, "--is_continue")
    early = generator.random() < 0.1  # sometimes before the first step
    while not early and os.waitpid(child, os.WNOHANG) == (0, 0):
        log = folder / "logs" / "train.log"
        if log.is_file() and LOSS_LINE.search(log.read_text()[size:]):
            break
        time.sleep(0.005)
    time.sleep(generator.uniform(0.0, LONGEST_LIFE))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def torture(folder: Path, kills: int, seed: int, keep: int = 0) -> Outcome:
    """Kill a run in `folder` that many times, then compare it with an undisturbed one beside it."""
    generator, faults, unfinished = random.Random(seed), [], set()
    killed, whole = folder / "killed", folder / "whole"
    newest: Path | None = None
    seen: dict[str, str] = {}
    for number in range(1, kills + 1):
        kill_once(killed, generator, keep)
        unfinished |= {path.name for path in (killed / "checkpoints").glob(".*.tmp")}
        present = checkpoints(killed)
        for path in present[-3:] if newest else present:
            faults += fault_of(path, number)
        if keep and len(present) > keep + 1:
            faults.append(f"kill {number}: {len(present)} checkpoints where {keep} are kept")
        if newest is not None and (not present or present[-1] < newest):
            faults.append(f"kill {number}: {newest.name} is gone")
        newest = present[-1] if present else None
        if newest is not None:
            seen |= {newest.name: fingerprint(newest)}
    end = max(load_checkpoint(newest).step if newest else 0, LEAST_STEPS)
    for place, flags in ((killed, ("--is_continue",)), (whole, ())):
        _, status = os.waitpid(live(place, end, keep if flags else 0, *flags), 0)
        if status:
            faults.append(f"{place.name}: the last life ended with status {os.waitstatus_to_exitcode(status)}")
    compared, differences = compare(killed, whole, seen)
    return Outcome(kills, len(unfinished), end, compared, (*faults, *differences))


def fault_of(path: Path, number: int) -> list[str]:
    """A sentence where a checkpoint cannot be read."""
    try:
        load_checkpoint(path)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what the harness is looking for)
        return [f"kill {number}: {error}"]
    return []


def fingerprint(path: Path) -> str:
    """A fingerprint of a checkpoint, or the reason if it cannot be read."""
    try:
        return hashlib.sha256(repr(sorted(contents(load_checkpoint(path)).items())).encode()).hexdigest()
    except CheckpointError as error:
        return str(error)


def compare(killed: Path, whole: Path, seen: Mapping[str, str] = MappingProxyType({})) -> tuple[int, list[str]]:
    """How many checkpoints both runs have, and a sentence for each that differs and each loss that does.

    `seen`: name -> fingerprint of checkpoints that the killed run had once.
    """
    names = {path.name for path in checkpoints(whole)}
    faults = [
        f"{path.name} is unknown to the undisturbed run" for path in checkpoints(killed) if path.name not in names
    ]
    ours = {**seen, **{path.name: fingerprint(path) for path in checkpoints(killed)}}
    common = sorted(ours.keys() & names)
    faults += [f"{name} differs" for name in common if ours[name] != fingerprint(whole / "checkpoints" / name)]
    expected = losses(whole)
    for step, texts in losses(killed).items():
        if step in expected and texts != expected[step]:
            faults.append(f"step {step}: {sorted(texts)}, undisturbed {sorted(expected[step])}")
    return len(common), faults


def main() -> int:
    """Kill a run repeatedly and report the result; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=int, default=0, help="train.keep_checkpoints of the run that is killed")
    parser.add_argument("--folder", type=Path, help="where the runs are kept (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        load_program()
        outcome = torture(folder, options.kills, options.seed, options.keep)
    print(
        f"{outcome.kills} kills, {outcome.unfinished_writes} of them within a write; {outcome.steps} steps, "
        f"{outcome.compared} checkpoints and their losses compared with an undisturbed run: "
        f"{len(outcome.faults)} faults"
    )
    for fault in outcome.faults[:20]:
        print(fault)
    return 1 if outcome.faults else 0


def load_program() -> None:
    """Import what a training needs, and compute nothing: threads do not survive a fork."""
    from models.machine import backend

    backend.select("cpu", 0)
    import models.runner  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
