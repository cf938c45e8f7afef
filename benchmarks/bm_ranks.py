"""Several processes for one training on this machine: speed, equality of results, and behaviour under kills.

    python -m benchmarks.bm_ranks speed      steps of wmask.conf: 2 ranks of 1 thread, 1 process of 1 and of 2 threads
    python -m benchmarks.bm_ranks same       50 losses and all weights of each model type: 1, 2 and 3 ranks compared
                                             with 1 rank, and 1 rank with 1 process without mpirun
    python -m benchmarks.bm_ranks memory     the memory of one of 2 ranks, and of 1 process with half of the rays
    python -m benchmarks.bm_ranks sums       the sum over ranks alone, and its predicted time on more machines
    python -m benchmarks.bm_ranks kills 50   kill a random rank at a random time, then resume

A round runs a few steps of each configuration, one after the other. The ratio is computed per round, and the median
over the rounds is reported, so that load on the machine affects whole rounds. The bundled scene is used. Requires
requirements-mpi.txt.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.rank_kills import MPIRUN, ROOT, environment, kills

SCENE = (f"dataset.data_dir={ROOT}/data/demo",)
WMASK = "confs/wmask.conf"
ROUNDS, STEPS, LOSSES = 7, 4, 50
LINK = 10e9 / 8  # bytes per second of the network that larger clusters are predicted for
LATENCY = 5e-5  # seconds of one message on it
MACHINES = (2, 8, 64)
SOME = (1, 2, 3)  # ranks
# Of each kind a conf, and what makes its steps small enough for fifty of them.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "neus": ("confs/wmask_cpu.conf", ("train.batch_size=32",)),
    "neus without masks": ("confs/womask_cpu.conf", ("train.batch_size=32",)),
    "nerf": ("confs/nerf_cpu.conf", ("train.batch_size=32",)),
    "fast_neus": ("confs/fast.conf", ("model.packed.samples=2048",)),
    "fast_neus without masks": ("confs/fast.conf", ("model.packed.samples=2048", "train.mask_weight=0")),
    "fast_nerf": ("confs/fast_nerf.conf", ("model.radiance.samples=2048",)),
    "gaussians": ("confs/gaussians.conf", ()),
    "surfels": ("confs/surfels.conf", ()),
}


@dataclass(frozen=True)
class Run:
    """A launch of benchmarks.ranks_worker."""

    ranks: int  # 0: a process by itself
    threads: int

    @property
    def words(self) -> str:
        """The configuration as a table entry."""
        count = f"{self.ranks} ranks" if self.ranks else "1 process"
        return f"{count} of {self.threads} thread{'s' if self.threads > 1 else ''}"


def measured(run: Run, task: str, conf: str, steps: int, settings: Sequence[str]) -> dict[str, np.ndarray]:
    """The output of the worker."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npz"
        worker = [sys.executable, "-m", "benchmarks.ranks_worker", task, conf, str(out), str(steps)]
        launch = [MPIRUN, "-n", str(run.ranks)] if run.ranks else []
        subprocess.run([*launch, *worker, *SCENE, *settings], check=True, cwd=ROOT, env=environment(run.threads))
        with np.load(out) as found:
            return dict(found)


def speed(rounds: int, conf: str, settings: Sequence[str]) -> None:
    """Medians of paired rounds, and the memory of the processes."""
    one, two, both = Run(0, 1), Run(2, 1), Run(0, 2)
    seconds: dict[Run, list[float]] = {one: [], two: [], both: []}
    busy: dict[Run, list[float]] = {one: [], two: [], both: []}
    peaks, sums = {}, []
    for _ in range(rounds):
        for run in (one, two, both):
            found = measured(run, "times", conf, STEPS, settings)
            seconds[run].append(float(np.median(found["seconds"])))
            busy[run].append(float(found["busy"]))
            peaks[run] = int(found["peak"])
            if run == two:
                sums.append(float(np.median(found["sums"])))
                size = int(found["bytes"])
    for run, values in seconds.items():
        print(
            f"{run.words:<28}{np.median(values):8.3f} s a step, {np.median(busy[run]):.3f} s of the processor for each "
            f"process, {peaks[run] / 1e6:.0f} MB at the most"
        )
    work = np.array(busy[one]) / np.array(busy[two])
    print(f"processor seconds of 1 process over those of the busier of 2 ranks: {np.median(work):.2f}")
    ratios = {other: np.array(seconds[other]) / np.array(seconds[two]) for other in (one, both)}
    for other, values in ratios.items():
        print(
            f"{two.words} beside {other.words}: {np.median(values):.2f} times as fast ({np.round(values, 2).tolist()})"
        )
    print(
        f"sum of {size / 1e6:.1f} MB over 2 ranks: {1e3 * np.median(sums):.1f} ms, "
        f"{np.median(sums) / np.median(seconds[two]):.1%} of a step"
    )


def half_of(conf: str) -> str:
    """The override for half of the conf's rays."""
    from models.methods.conf import load_config

    return f"train.batch_size={load_config(conf, 'demo').train.batch_size // 2}"


def same(kinds: Sequence[str], settings: Sequence[str]) -> None:
    """Print a line for each model type and number of ranks, each run twice."""
    print(f"{'kind':<26}{'ranks':>6}{'beside':>11}{'losses':>10}{'weights':>10}{'beyond 1e-4':>13}  twice the same")
    for kind in kinds:
        conf, own = KINDS[kind]
        plain, *of_ranks = (
            [measured(Run(ranks, 1), "steps", conf, LOSSES, [*own, *settings]) for _ in range(2 if ranks else 1)]
            for ranks in (0, *SOME)
        )
        for ranks, (found, again) in zip(SOME, of_ranks, strict=True):
            told = "yes" if all(np.array_equal(found[name], again[name]) for name in found) else "NO"
            for beside, other in (("1 process", plain[0]), ("1 rank", of_ranks[0][0])):
                if beside == "1 process" or ranks > 1:
                    print(f"{kind:<26}{ranks:>6}{beside:>11}{apart(found, other)}  {told}", flush=True)


def memory(conf: str, settings: Sequence[str]) -> None:
    """The memory of one of two ranks, and of one process with the same number of rays, alone and as one of two
    concurrent ones.
    """
    print(f"{'MB':<44}{'peak':>8}{'at the end':>12}{'its share':>11}{'its own data':>14}")
    half = [*settings, half_of(conf)]
    with ThreadPoolExecutor(2) as both:
        twice = list(both.map(lambda _: measured(Run(0, 1), "times", conf, STEPS, half), range(2)))
    found = {
        "a rank of 2": measured(Run(2, 1), "times", conf, STEPS, settings),
        "1 process with half of the rays": measured(Run(0, 1), "times", conf, STEPS, half),
        "one of two such processes at the same time": twice[0],
    }
    for words, one in found.items():
        values = [f"{float(one[name]) / 1e6:.0f}" for name in ("peak", "resident", "share", "data")]
        print(f"{words:<44}{values[0]:>8}{values[1]:>12}{values[2]:>11}{values[3]:>14}")
    print(f"the buffer of the sum has {float(found['a rank of 2']['bytes']) / 1e6:.1f} MB")
    print("its share: pages that several processes have are divided among them; its own data: what no file holds")


def apart(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str:
    """Relative difference of losses; difference of weights; the fraction of weights with a large difference."""
    if any(found[name].shape != expected[name].shape for name in expected):
        return f"{'weights of other shapes':>33}"
    if all(np.array_equal(found[name], expected[name]) for name in expected):
        return f"{'equal bit for bit':>33}"
    between = {name: np.abs(found[name].astype(np.float64) - expected[name]) for name in expected}
    losses = float((between.pop("losses") / np.abs(expected["losses"])).max())
    weights = np.concatenate([values.ravel() for values in between.values()])
    return f"{losses:10.1e}{weights.max():10.1e}{(weights > 1e-4).mean():13.1e}"


def sums(conf: str, rays_per_second: float) -> None:
    """Measure the sum between two processes, and predict it for several machines."""
    found = measured(Run(2, 1), "times", conf, 12, ("train.batch_size=16",))
    size, seconds = int(found["bytes"]), float(np.median(found["sums"]))
    print(f"{conf}: {size / 1e6:.2f} MB, {1e3 * seconds:.2f} ms between 2 ranks here ({size / seconds / 1e9:.2f} GB/s)")
    for machines in MACHINES:
        wire = predicted(size, machines)
        least = wire * rays_per_second
        print(
            f"  {machines} machines at 10 Gbit/s: {1e3 * wire:.1f} ms by 2 (N - 1) / N of the bytes; as long as the "
            f"step's own work at {least:.0f} rays per machine, a tenth of it at {10 * least:.0f}"
        )


def predicted(size: int, machines: int) -> float:
    """Predicted seconds of a sum of `size` bytes in a ring of machines: each sends 2 (N - 1) messages of size / N."""
    return 2 * (machines - 1) * (size / machines / LINK + LATENCY)


def main() -> None:
    """Run the measurement that the first argument names; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("speed", "same", "memory", "sums", "kills"))
    parser.add_argument("values", nargs="*", help="same: kinds; kills: how many")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--conf", default=WMASK)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--rays", type=float, default=400.0, help="sums: rays per second of one machine")
    given = parser.parse_args()
    os.chdir(ROOT)
    if given.task == "speed":
        speed(given.rounds, given.conf, given.settings)
    elif given.task == "same":
        same(given.values or list(KINDS), given.settings)
    elif given.task == "memory":
        memory(given.conf, given.settings)
    elif given.task == "sums":
        sums(given.conf, given.rays)
    else:
        kills(int((given.values or ["50"])[0]))


if __name__ == "__main__":
    main()
