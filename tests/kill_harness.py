"""Kill a training again and again with SIGKILL, and see that nothing is lost.

    python tests/kill_harness.py KILLS KEEP FOLDER

A run of tiny networks writes a checkpoint every few steps. It is killed at a random moment, resumed, killed again.
After every kill each file with a checkpoint's name must be complete, and the newest must not be older than before; with
KEEP (train.keep_checkpoints) few stay. At the end every checkpoint and every reported loss must equal those of a run
that was never disturbed. Exit status 1 where something does not hold.

Each life is a fork of a process that has loaded the program and used none of it, so that a kill costs no start.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runs import contents, run
from tqdm import tqdm

from models.checkpoints.ours import load_checkpoint

LONGEST_LIFE = 0.25  # s after the first sign of life; a checkpoint of these networks is written about every 30 ms
LEAST_STEPS = 60  # the undisturbed run goes at least this far
LOSS_LINE = re.compile(r" INFO step (\d+): (loss [\d.]+, batch PSNR [\d.]+, inv_s [\d.]+),")
SETTINGS = ("train.batch_size=16", "model.neus_renderer.n_importance=4", "train.learning_rate_alpha=1")
SETTINGS += ("train.val_freq=0", "train.val_mesh_freq=0", "train.warm_up_end=2")
SETTINGS += ("train.save_freq=3", "train.report_freq=1")


def live(folder: Path, end: int, keep: int, *flags: str) -> int:
    """Start a life in a forked process; returns its number."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        settings = (*SETTINGS, f"train.end_iter={end}", f"train.keep_checkpoints={keep}")
        os._exit(run(folder, *flags, settings=settings))
    finally:
        os._exit(70)


def losses(folder: Path) -> set[tuple[str, str]]:
    """The steps with what was reported for them; a last line that was cut is not read."""
    path = folder / "logs" / "train.log"
    return set(LOSS_LINE.findall(path.read_text())) if path.is_file() else set()


def prints(folder: Path) -> dict[str, str]:
    """A fingerprint of each checkpoint by name, oldest first; raises CheckpointError for one that cannot be read."""
    files = sorted((folder / "checkpoints").glob("ckpt_*.safetensors"))
    texts = {path.name: repr(sorted(contents(load_checkpoint(path)).items())) for path in files}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def newest(folder: Path) -> str:
    """The name of the newest checkpoint; "" without one."""
    return max((path.name for path in (folder / "checkpoints").glob("ckpt_*.safetensors")), default="")


def kill_once(folder: Path, generator: random.Random, keep: int) -> None:
    """Resume, wait for a sign of life, then a random while, then SIGKILL."""
    # None: sometimes before the first step. On a busy machine a step may take longer than LONGEST_LIFE: every second
    # life has written a checkpoint.
    sign = generator.choices((None, losses, newest), (1, 4, 5))[0]
    before = sign and sign(folder)
    child = live(folder, 10**6, keep, "--is_continue")
    while sign and sign(folder) == before and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.005)
    time.sleep(generator.uniform(0.0, LONGEST_LIFE))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def torture(kills: int, keep: int, folder: Path) -> int:
    """Kill a run that many times and compare it with one beside it; returns the number of equal checkpoints."""
    generator, seen, last = random.Random(0), {}, ""
    killed, whole = folder / "killed", folder / "whole"
    for _ in range(kills):
        kill_once(killed, generator, keep)
        found = prints(killed)
        assert not keep or len(found) <= keep + 1, sorted(found)
        assert max(found, default="") >= last, (last, sorted(found))
        last, seen = max(found, default=""), seen | found
    end = max(int(last[5:11] or 0), *(int(step) for step, _ in losses(killed)), LEAST_STEPS)
    for place, flags in ((killed, ("--is_continue",)), (whole, ())):
        assert os.waitpid(live(place, end, keep if flags else 0, *flags), 0)[1] == 0, place
    undisturbed, ours = prints(whole), seen | prints(killed)
    assert ours.items() <= undisturbed.items(), sorted(ours.items() - undisturbed.items())
    assert losses(killed) <= losses(whole), sorted(losses(killed) - losses(whole))
    return len(ours)


if __name__ == "__main__":
    from models.machine import jittor_import

    tqdm.set_lock(threading.RLock())  # a killed process would keep the one that processes share
    jittor_import.select("cpu", 0)  # loads the program, and computes nothing: threads do not survive a fork
    import models.commands.runner  # noqa: F401

    print(f"{torture(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))} checkpoints compared")
