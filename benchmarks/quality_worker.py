"""One timed training of bm_time_to_quality.py, in a separate process: `python -m benchmarks.quality_worker FOLDER`.

FOLDER/job.json tells what to do; the rows are written to FOLDER/rows.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.serve import peak_bytes
from models.commands.interface import train
from models.conf import parse_config
from models.machine.backend import jt
from models.mesh.extraction import EmptySurfaceError
from models.requests import UNIT, EvaluationRequest, MeshRequest
from models.results.callback import Callback
from models.results.context import EvalContext
from models.results.evaluate import evaluate
from models.results.experiment import Experiment
from models.results.references import read_references

METRICS = ("chamfer", "f_score", "normal_consistency", "psnr", "psnr_mask", "points_median", "points_p90")
MB = 10**6


class Clock(Callback):
    """Seconds of the steps but for the first, wall-clock and of the processor; the metrics at some of them, untimed."""

    name = "the benchmark"

    def __init__(self, marks: Sequence[int], request: EvaluationRequest) -> None:
        self._marks, self._request = set(marks), request
        self.rows: list[dict[str, Any]] = []
        self._spent, self._since = (0.0, 0.0), (0.0, 0.0)
        self._began = time.time()

    def begin(self, experiment: Experiment) -> None:
        """Read the references before the first step."""
        self._references = read_references(experiment, self._request)

    def after_step(self, context: Callable[[], EvalContext]) -> None:
        """Take the time, and the metrics where they are asked for."""
        step = (now := context()).step
        if not self._since[0]:
            self._since, self._began = _now(), time.time()
        if step not in self._marks:
            return
        self._marks.remove(step)
        jt.sync_all(True)
        self._spent = tuple(s + n - b for s, n, b in zip(self._spent, _now(), self._since, strict=True))
        row = {"step": step, "seconds": self._spent[0], "cpu_seconds": self._spent[1], "peak_mb": peak_bytes() / MB}
        row["compiled"] = compiled_since(self._began)
        try:
            values = evaluate(now, self._request, self._references).values
            self.rows.append(row | {name: values[name] for name in METRICS})
        except EmptySurfaceError as error:
            self.rows.append(row | dict.fromkeys(METRICS) | {"note": str(error)})
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak of an evaluation does not count
        self._since, self._began = _now(), time.time()


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def compiled_since(began: float) -> int:
    """How many libraries of this process are younger than `began`, seconds of the epoch: operations compiled since."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    libraries = {Path(line.split(maxsplit=5)[-1]) for line in lines if line.endswith(".so")}
    return sum(path.is_file() and path.stat().st_mtime >= began for path in libraries)


def main(folder: Path) -> None:
    """Train, and write the rows."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    gt, points = (Path(job[name]) if job[name] else None for name in ("ground_truth", "points"))
    request = EvaluationRequest(MeshRequest(job["resolution"]), gt=gt, points=points, frame=UNIT)
    clock = Clock(job["marks"], request)
    train(parse_config(job["conf"], str(folder)), overwrite=True, device=job["device"], callbacks=[clock])
    (folder / "rows.json").write_text(json.dumps(clock.rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
