"""One run of the gallery: a training by the command line, its evaluation, and a JSON file with the results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2

from benchmarks.gallery.sources import Case, prepare
from benchmarks.gallery.verdict import blurred_psnr, collapse, from_log
from benchmarks.report import provenance
from data.errors import UserError
from data.io.files import write_result
from data.io.images import read_image, size_within, write_image
from data.scenes.load import load_held_out, load_scene
from models.evaluation.evaluate import PICTURE
from models.evaluation.metric_files import FOLDER, JSON_FILE, read_json
from models.experiment import background
from models.methods.conf import load_config

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ("fast", "geo", "fast_nerf", "gaussians", "surfels")
MASKS_OPTIONAL = ("fast", "geo")  # confs that train without masks as they ship
INTERRUPTED = (129, 130, 143, -1, -2, -15)  # exit statuses of a run that was stopped: there is no result
CHECKPOINTS = 5  # in the course of a training: what its end is compared with
RESULTS, EXPERIMENTS = "results", "experiments"  # below the gallery's folder
PICTURE_WIDTH = 720  # pixels, of the page's images
METRICS = (
    *("psnr", "psnr_mask", "ssim", "chamfer", "f_score", "points_median", "points_p90", "points_missing"),
    *("triangles", "counts_first", "held_out"),
)
# Of the quick form of MASKS_OPTIONAL: steps are half a pixel of the photographs, so that few samples are many rays.
QUICK_SETTINGS = (
    *("model.packed.samples=3072", "model.packed.last_step=0.015", "model.background.samples=1024"),
    "train.batch_size=2048",
)
Execute = Callable[[Sequence[str], Path], int]  # arguments of the command line, file for its output -> exit status


@dataclass(frozen=True)
class Run:
    """A training of the gallery: scene, conf, steps and seed."""

    case: Case
    conf: str  # one of RECIPES
    steps: int
    seed: int
    settings: tuple[str, ...] = ()  # KEY=VALUE of the conf

    @property
    def name(self) -> str:
        """The base name of its files."""
        return f"{self.case.title}-{self.conf}-{self.steps}-{self.seed}"

    def flags(self, out: Path) -> list[str]:
        """The common flags of training and evaluation."""
        values = [
            f"dataset.data_dir={self.case.folder.absolute()}",
            f"general.base_exp_dir={out.absolute() / EXPERIMENTS / self.name}",
            *("general.recording=[]", "train.val_freq=0", "train.val_mesh_freq=0"),
            f"train.end_iter={self.steps}",
            f"train.save_freq={max(1, self.steps // CHECKPOINTS)}",
            f"train.seed={self.seed}",
            *self.case.settings,
            *(() if self.case.has_masks or self.conf in MASKS_OPTIONAL else ("train.mask_weight=0",)),
            *self.settings,
        ]
        words = [word for value in values for word in ("--set", value)]
        return ["--conf", str(ROOT / "confs" / f"{self.conf}.conf"), *words]


class Interrupted(Exception):
    """A run that was interrupted by a signal."""


def in_process(threads: int) -> Execute:
    """The command line in a separate process, with that many threads."""

    def execute(arguments: Sequence[str], output: Path) -> int:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        with output.open("ab") as file:
            command = [sys.executable, str(ROOT / "exp_runner.py"), *arguments]
            return subprocess.run(command, cwd=ROOT, env=environment, stdout=file, stderr=file, check=False).returncode

    return execute


def result_file(run: Run, out: Path) -> Path:
    """The file with the result of a finished run."""
    return out / RESULTS / f"{run.name}.json"


def do(run: Run, out: Path, resolution: int, execute: Execute, is_kept: bool = False) -> dict[str, Any]:
    """Train and evaluate, unless the result exists; returns the result, which is stored in a file.

    An interrupted training resumes from its newest checkpoint. Without `is_kept` the experiment folder is removed at
    the end. Raises UserError for a scene that cannot be written, and Interrupted.
    """
    path = result_file(run, out)
    if path.is_file():
        return read_result(path)
    prepare(run.case)
    folder = out / EXPERIMENTS / run.name
    (out / RESULTS).mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    output = path.with_suffix(".log")
    start = time.monotonic()
    train_status = _executed(execute, ["--mode", "train", "--is_continue", *run.flags(out)], output)
    seconds = time.monotonic() - start
    evaluate_status = _evaluated(run, out, resolution, execute, output) if _has_checkpoint(folder) else 2
    result = {
        **{"scene": run.case.name, "has_masks": run.case.has_masks, "conf": run.conf, "steps": run.steps},
        **{"seed": run.seed, "settings": list(run.settings), "seconds": seconds},
        "exposure_varies": run.case.exposure_varies,
        **{"train_status": train_status, "evaluate_status": evaluate_status, "message": _last_line(output)},
        **_metrics(run, out),
        **from_log(_text(folder / "logs" / "train.log")),
        **{key: value for key, value in provenance().items() if key != "cpu"},
    }
    result["collapse"] = collapse(result)
    if (folder / FOLDER / PICTURE).is_file():
        _reduce(folder / FOLDER / PICTURE, path.with_suffix(".jpg"))
    write_result(path, (json.dumps(result, indent=1) + "\n").encode())
    if not is_kept:
        shutil.rmtree(folder)
    return result


def read_result(path: Path) -> dict[str, Any]:
    """Read a result; raises UserError for another file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove it, and the run is repeated") from error


def _executed(execute: Execute, arguments: list[str], output: Path) -> int:
    """The exit status; raises Interrupted."""
    status = execute(arguments, output)
    if status in INTERRUPTED:
        raise Interrupted
    return status


def _evaluated(run: Run, out: Path, resolution: int, execute: Execute, output: Path) -> int:
    """Evaluate with all references; if that is rejected (no surface), with the photographs only."""
    arguments = ["--mode", "evaluate", "--resolution", str(resolution), *run.flags(out)]
    against = ["--frame", run.case.frame]
    for flag, path in (("--gt", run.case.truth), ("--points", run.case.points)):
        against += [] if path is None else [flag, str(path.absolute())]
    status = _executed(execute, [*arguments, *against], output)
    if status and len(against) > 2:
        _executed(execute, arguments, output)
    return status


def _metrics(run: Run, out: Path) -> dict[str, Any]:
    """METRICS of the evaluation, None for missing ones, and the primary PSNR with that of the blurred photographs."""
    path = out / EXPERIMENTS / run.name / FOLDER / JSON_FILE
    found = read_json(path) if path.is_file() else {}
    metrics = {name: found.get(name) for name in METRICS}
    first = metrics["counts_first"] or "psnr"
    overrides = run.flags(out)[3::2]
    conf = load_config(ROOT / "confs" / f"{run.conf}.conf", "gallery", overrides)
    try:
        scene = load_scene(conf.dataset, background(conf))
        held_out = load_held_out(conf.dataset, scene, background(conf))
    except UserError:  # the training said so, and ended with its status
        held_out = None
    metrics["blurred"] = blurred_psnr(held_out)[first] if held_out is not None else None
    return metrics | {"psnr_whole": metrics["psnr"], "psnr": metrics[first]}


def _has_checkpoint(folder: Path) -> bool:
    return any(folder.glob("checkpoints/ckpt_*.safetensors"))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _last_line(path: Path) -> str:
    """The last line printed by the command line; "" if there is none."""
    lines = [line.strip() for line in _text(path).replace("\r", "\n").splitlines()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or [line for line in lines if line] or [""])[-1]


def _reduce(source: Path, target: Path) -> None:
    """Convert an image to a small JPEG."""
    picture = read_image(source)[..., :3]
    size, _ = size_within((picture.shape[1], picture.shape[0]), PICTURE_WIDTH)
    write_image(target, cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
