"""Quality of the recipes on many scenes: `python -m benchmarks.bm_gallery --help`."""

from __future__ import annotations

import argparse
import base64
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import cv2

from benchmarks.gallery.render import TRUTH, TRUTH_OBJECT, WITNESS, write_scene
from benchmarks.gallery.scenes import CATALOGUE, HELD_OUT_EVERY, QUICK, RELIEF, SceneSpec
from benchmarks.report import ROOT, provenance
from data.errors import UserError
from data.io.files import write_result
from data.io.images import read_image, write_image
from data.io.streams import complain, say
from data.pixels import size_within
from models.results.evaluate import PICTURE
from models.results.metric_tables import FOLDER, JSON_FILE, read_json
from models.training.checkpoint import FALL

DESCRIPTION = """
Trains recipes on generated and captured scenes, with and without masks, evaluates them and writes one page of PSNR,
Chamfer distance, skipped steps and collapses, and last one line of JSON. One file per run is kept in --out: started
again, the command goes on with the runs that are missing. Exit status 1 if a run collapsed.
"""
RECIPES = ("fast", "geo", "fast_nerf", "gaussians", "surfels")
SURFACES, MASKS_OPTIONAL = ("fast", "geo", "surfels"), ("fast", "geo")  # for meshes; those that train without masks
EVERY_EIGHTH = f"dataset.test_every={HELD_OUT_EVERY}"
# Name -> its folder has masks, settings, ground truth in the world, SfM points in the unit sphere.
CAPTURED = {
    "bunny": (True, (EVERY_EIGHTH,), "gt_world.ply", ""),
    "dtu_scan24": (False, (EVERY_EIGHTH,), "", "sfm_points.ply"),
    "dtu_scan65": (True, (EVERY_EIGHTH,), "", "sfm_points.ply"),
    "lego": (True, (), "", ""),
    "fox": (False, (EVERY_EIGHTH, "dataset.downscale=4"), "", ""),
}
# Of the quick form: steps are half a pixel of the photographs, so that few samples are many rays.
QUICK_SETTINGS = ("model.packed.samples=3072", "model.packed.last_step=0.015", "model.open.samples=1024")
QUICK_SETTINGS += ("train.batch_size=2048",)
CHECKPOINTS = 5  # in the course of a training: what its end is compared with
METRICS = ("psnr", "psnr_mask", "counts_first", "chamfer", "f_score", "points_median", "points_p90", "triangles")
METRICS += ("normal_consistency", "relief_correlation", "relief_explained")
SHOWN = {"psnr": ".2f", "chamfer": ".4f", "f_score": ".2f", "points_median": ".4f", "points_p90": ".4f"}
SCORE = re.compile(r"INFO step \d+: PSNR of \d+ (?:validation|training) photographs, reduced in size, (-?[\d.]+) dB")
RESTORED = re.compile(r"the training ends with the weights of step \d+, (-?[\d.]+) dB")
SKIPPED = re.compile(r"WARNING step \d+ skipped:")
STYLE = (
    "table{border-collapse:collapse}td,th{border:1px solid #ddd;padding:3px 8px}.bad{background:#fdd}img{height:84px}"
)
INTERRUPTED = (129, 130, 143, -1, -2, -15)  # exit statuses of a run that was stopped: there is no result
Execute = Callable[[Sequence[str], Path], int]  # arguments of the command line, file for its output -> exit status


@dataclass(frozen=True)
class Case:
    """A scene for training, with or without its masks."""

    name: str
    has_masks: bool
    original: Path  # a scene folder
    settings: tuple[str, ...]  # KEY=VALUE of the conf: what is held out, and the reduction of the photographs
    truth: Path | None = None
    points: Path | None = None
    frame: str = "world"  # of truth and points
    spec: SceneSpec | None = None  # what `original` is made of

    @property
    def title(self) -> str:
        """The name of the scene, with a note if its masks are omitted."""
        return self.name if self.has_masks else f"{self.name}_no_masks"

    def prepared(self, out: Path) -> Path:
        """The folder to train on, which is written below `out` if it is generated or lacks the masks of another."""
        if self.spec is not None:
            write_scene(self.spec, self.original)
        if self.has_masks or not (self.original / "mask").is_dir():
            return self.original
        folder = out / "scenes" / self.title
        folder.mkdir(parents=True, exist_ok=True)
        for entry in self.original.iterdir():
            if entry.name != "mask" and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry.resolve())
        return folder


def generated(specs: Iterable[SceneSpec], out: Path, is_quick: bool = False) -> list[Case]:
    """The cases of generated scenes, in subfolders of `out`; those of the quick form are not repeated without masks."""
    cases = []
    for spec in specs:
        base = out / "scenes" / spec.name
        for has_masks in ((True, False) if not is_quick else (True,)) if spec.has_masks else (False,):
            truth = base / (TRUTH_OBJECT if has_masks else TRUTH)
            cases.append(Case(spec.name, has_masks, base, (EVERY_EIGHTH,), truth, base / WITNESS, spec=spec))
    return cases


def captured(data: Path) -> list[Case]:
    """The cases of the folder of captured scenes; raises UserError if it contains none of them."""
    cases = []
    for name, (has_masks, settings, truth, points) in CAPTURED.items():
        base, references = (
            data / name,
            (data / name / truth if truth else None, data / name / points if points else None),
        )
        frame = "unit" if points else "world"
        variants = (True, False) if (base / "mask").is_dir() else (has_masks,)
        cases += [Case(name, each, base, settings, *references, frame) for each in variants if base.is_dir()]
    if not cases:
        raise UserError(f"--data {data}: holds none of {', '.join(CAPTURED)}")
    return cases


def in_process(arguments: Sequence[str], output: Path) -> int:
    """The command line in a separate process."""
    with output.open("ab") as file:
        command = [sys.executable, str(ROOT / "exp_runner.py"), *arguments]
        return subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, check=False).returncode


def train_and_evaluate(
    case: Case, conf: str, settings: Sequence[str], folder: Path, execute: Execute
) -> dict[str, Any]:
    """The result of one training, whose files are in `folder`; an interrupted one resumes from its newest checkpoint.

    Raises UserError for a scene that cannot be written, and KeyboardInterrupt.
    """
    values = [*settings, *case.settings, f"general.base_exp_dir={folder}"]
    values += ["general.recording=[]", "train.val_freq=0", "train.val_mesh_freq=0"]
    if not case.has_masks and conf not in MASKS_OPTIONAL:
        values.append("train.mask_weight=0")
    flags = ["--conf", str(ROOT / "confs" / f"{conf}.conf"), *(word for value in values for word in ("--set", value))]
    evaluate = ["--mode", "evaluate", "--resolution", "256", "--frame", case.frame, *flags]
    for flag, path in (("--gt", case.truth), ("--points", case.points)):
        evaluate += [] if path is None else [flag, str(path.absolute())]
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "output.log"
    statuses = [execute(["--mode", "train", "--is_continue", *flags], output)]
    if any(folder.glob("checkpoints/*.safetensors")):
        statuses.append(execute(evaluate, output))
    if set(statuses) & set(INTERRUPTED):
        raise KeyboardInterrupt
    metrics, log = folder / FOLDER / JSON_FILE, folder / "logs" / "train.log"
    found = read_json(metrics) if metrics.is_file() else {}
    result = {name: found.get(name) for name in METRICS}
    result["psnr"] = result[result["counts_first"] or "psnr"]
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    scores = [float(score) for score in (*SCORE.findall(text), *RESTORED.findall(text))]
    result |= {"seconds": found.get("seconds"), "skipped": len(SKIPPED.findall(text)), "scores": scores}
    lines = output.read_text(encoding="utf-8", errors="replace").split("\n") if output.is_file() else []
    errors = [line for line in lines if line.startswith("error")]
    return result | {"collapse": collapse(conf, statuses, result, (errors or ["it said nothing"])[-1])}


def collapse(conf: str, statuses: Sequence[int], result: Mapping[str, Any], message: str) -> str:
    """Why a run counts as collapsed; "" if it does not.

    It has collapsed if the training or its evaluation failed (as a training below its blurred photographs, or without a
    surface, does), if its last score is more than FALL dB below an earlier one, or if a recipe for surfaces has none.
    """
    if any(statuses):
        which = "training" if statuses[0] else "evaluation"
        return f"{which} ended with status {max(statuses)}: {message}"
    scores = result["scores"]
    if scores and scores[-1] < max(scores) - FALL:
        return f"fell from {max(scores):.1f} dB to {scores[-1]:.1f} dB"
    return "no surface" if conf in SURFACES and not result["triangles"] else ""


def write_page(out: Path, results: Sequence[Mapping[str, Any]]) -> Path:
    """The page of results: a row for each scene, recipe and length, with means over the seeds."""
    groups: dict[tuple, list[Mapping[str, Any]]] = {}
    for one in results:
        groups.setdefault((one["scene"], one["conf"], one["steps"]), []).append(one)
    rows = []
    for key, group in sorted(groups.items()):
        values = {name: [one[name] for one in group if one[name] is not None] for name in SHOWN}
        shown = [format(fmean(values[name]), form) if values[name] else "-" for name, form in SHOWN.items()]
        reasons = [one["collapse"] for one in group if one["collapse"]]
        told = f"{len(reasons)} of {len(group)} {'; '.join(sorted(set(reasons)))}"
        cells = [*map(str, key), *shown, str(sum(one["skipped"] for one in group)), told]
        picture = out / "results" / f"{group[0]['name']}.jpg"
        data = base64.b64encode(picture.read_bytes()).decode() if picture.is_file() else ""
        image = f'<td><img alt="" src="data:image/jpeg;base64,{data}">' if data else "<td>-"
        inside = "".join(f"<td>{html.escape(cell)}" for cell in cells)
        rows.append(f"<tr{' class=bad' if reasons else ''}>{inside}{image}\n")
    titles = ("scene", "conf", "steps", *SHOWN, "skipped", "collapsed", "rendering | photograph | normals | mesh")
    head = "".join(f"<th>{html.escape(title)}" for title in titles)
    count = f"{len(results)} runs, {sum(bool(one['collapse']) for one in results)} collapsed. Lengths in radii."
    text = f"<!doctype html><meta charset=utf-8><title>Gallery</title><style>{STYLE}</style>"
    write_result(out / "gallery.html", f"{text}<p>{count}<table><tr>{head}\n{''.join(rows)}</table>\n".encode())
    return out / "gallery.html"


def run_all(given: argparse.Namespace, execute: Execute) -> list[dict[str, Any]]:
    """Do what is missing, short trainings first, and write the page after each; returns all results."""
    specs = QUICK if given.quick else (*CATALOGUE, *(RELIEF if given.scenes else ()))
    cases = generated(specs, given.out, given.quick)
    cases += captured(given.data) if given.data else []
    if unknown := sorted(set(given.scenes) - {case.title for case in cases}):
        raise UserError(f"--scenes {unknown[0]}: is none of {', '.join(case.title for case in cases)}")
    cases = [case for case in cases if not given.scenes or case.title in given.scenes]
    runs = [
        (n, seed, case, conf) for n in given.steps for seed in given.seeds for case in cases for conf in given.confs
    ]
    results: list[dict[str, Any]] = []
    for steps, seed, case, conf in runs:
        name = f"{case.title}-{conf}-{steps}-{seed}"
        path, folder = given.out / "results" / f"{name}.json", given.out.absolute() / "experiments" / name
        if not path.is_file():
            data = f"dataset.data_dir={case.prepared(given.out).absolute()}"
            settings = [data, *(QUICK_SETTINGS if given.quick else ()), f"train.end_iter={steps}", f"train.seed={seed}"]
            settings += [f"train.save_freq={max(1, steps // CHECKPOINTS)}", *given.set]
            result = train_and_evaluate(case, conf, settings, folder, execute)
            about = {"name": name, "scene": case.title, "conf": conf, "steps": steps, "seed": seed}
            path.parent.mkdir(parents=True, exist_ok=True)
            if (folder / FOLDER / PICTURE).is_file():
                picture = read_image(folder / FOLDER / PICTURE)[..., :3]
                size, _ = size_within((picture.shape[1], picture.shape[0]), 720)
                write_image(path.with_suffix(".jpg"), cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
            write_result(path, (json.dumps(about | result | provenance()) + "\n").encode())
            shutil.rmtree(folder)
        results.append(json.loads(path.read_text(encoding="utf-8")))
        say(
            f"{len(results)}/{len(runs)} {name}: PSNR {results[-1]['psnr']}, {results[-1]['collapse'] or 'no collapse'}"
        )
        page = write_page(given.out, results)
    say(f"page: {page}")
    return results


def main(arguments: Sequence[str], execute: Execute = in_process) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bm_gallery", description=DESCRIPTION, allow_abbrev=False
    )
    add, numbers = parser.add_argument, lambda text: [int(part) for part in text.split(",")]
    names = lambda text: text.split(",")  # noqa: E731
    add("--data", type=Path, metavar="FOLDER", help=f"captured scenes: {', '.join(CAPTURED)}")
    add("--out", type=Path, default=Path("exp/gallery"), help="scenes, results and page (default exp/gallery)")
    add(
        "--scenes",
        type=names,
        default=[],
        metavar="A,...",
        help="some of them, or of stone_7, stone_8; NAME_no_masks is one without",
    )
    add("--confs", type=names, metavar="A,...", help=f"recipes (default {','.join(RECIPES)})")
    add("--steps", type=numbers, metavar="N,...", help="lengths of the trainings (default 1000,5000,15000)")
    add("--seeds", type=numbers, metavar="N,...", help="of the trainings (default 0,1,2)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value in all confs; repeatable")
    add("--quick", action="store_true", help="four small scenes; by default confs/fast.conf, 600 steps, seed 0")
    given = parser.parse_args(arguments)
    given.confs = given.confs or (["fast"] if given.quick else RECIPES)
    given.steps = given.steps or ([600] if given.quick else [1000, 5000, 15000])
    given.seeds = given.seeds or ([0] if given.quick else [0, 1, 2])
    try:
        results = run_all(given, execute)
    except UserError as error:
        complain(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        complain("interrupted; the same command goes on")
        return 130
    say(json.dumps(provenance() | {"results": results}))
    return int(any(one["collapse"] for one in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
