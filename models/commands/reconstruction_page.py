"""The warnings of `--mode reconstruct` before the training, and the page of its results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError, one_line
from data.io.files import read_regular
from data.parsed_scene import WorldFrame
from data.prepare.inspection.epipolar import Finding
from data.scenes.config import TRAINING
from models.plan import PLAN_KEY
from models.results.metric_tables import lines
from models.results.report.document import escaped
from models.results.surface_metrics import MISSING

MOST_BYTES = 1 << 24
SOME_MISSING, MOST_MISSING = 0.2, 0.5  # fraction of held-out points without a surface: parts or most of it are wrong
# PSNR of test photographs, dB: below the first the views are inconsistent, below the second fine detail is wrong.
LEAST_PSNR, FAIR_PSNR = 16.0, 20.0
COVER = "cover.png"
UNTESTED = 0.05  # fraction of the mesh off the dominant plane, and of that part near points, below which it is none
PHASES, CURVE = "phases", "score_curve"  # keys of metrics.json
# The phase of each mode, without the phases within it.
PHASE_OF = {
    "prepare": "scene",
    "inspect": "checks",
    "train": "training",
    "validate_mesh": "mesh",
    "validate_image": "images",
    "evaluate": "report",
}
UNKNOWN = WorldFrame("")
LEAST_EPIPOLAR = 1.5  # pixels of epipolar distance from which the cameras are wrong, as in inspect


def read_figures(path: Path) -> dict[str, Any]:
    """The JSON object of a file; {} if it is missing or damaged."""
    try:
        value = json.loads(read_regular(path, MOST_BYTES)) if path.is_file() else {}
    except (OSError, ValueError, RecursionError, UserError):
        return {}
    return value if isinstance(value, dict) else {}


def warnings(health: Mapping[str, Any]) -> list[str]:
    """A sentence for each doubt and each finding of `inspect` that is not good, the worst first."""
    found = [entry for entry in health.get("findings", ()) if entry["verdict"] != "good"]
    found.sort(key=lambda entry: entry["verdict"] != "bad")
    return [*map(one_line, health.get("doubts", ())), *(one_line(Finding(**entry).line) for entry in found)]


def trust(figures: Mapping[str, Any], frame: WorldFrame = UNKNOWN) -> list[str]:
    """Sentences on the reliability of the result, from its metrics and photographs without cameras; at least one."""
    found = []
    if frame.without_camera:
        found.append(f"{frame.left_out}; what only they show is missing or invented: take photographs between them")
    missing, psnr, epipolar = (figures.get(name) for name in ("points_missing", "psnr", "epipolar_px"))
    if figures.get("counts_first") == "psnr_mask":
        psnr = figures.get("psnr_mask")
    if missing is not None:
        near = f"{1 - missing:.0%} of the SfM points have a surface within {MISSING:g} radii"
        covered = _covered(figures)
        if missing > MOST_MISSING:
            found.append(f"only {near}: most of the mesh is wrong, do not measure on it")
        elif missing > SOME_MISSING:
            found.append(f"{near}: parts of the mesh are wrong, compare it with the photographs")
        elif _is_untested(figures):
            found.append(f"{near}, but {covered}: the object itself is not tested, compare it with the photographs")
        else:
            found.append(f"{near}, and {covered}")
    if (views := figures.get("cover_views")) is not None:
        found.append(
            f"3 or more of {figures['photographs']} photographs with cameras see {views:.0%} of the mesh's area, and "
            f"at least {figures['views_median']:.0f} see half of it ({COVER})"
        )
    if sides := figures.get("sides_missing"):
        found.append(
            f"no photograph with a camera is from {sides}: if the object has these sides, take photographs there, each "
            "overlapping the next by two thirds"
        )
    if psnr is not None:
        reached = f"PSNR of test photographs {psnr:.1f} dB"
        if psnr < LEAST_PSNR:
            found.append(f"{reached}: the views are not consistent with one shape")
        elif psnr < FAIR_PSNR:
            found.append(f"{reached}: fine detail is not reliable")
        elif missing is None:
            found.append(f"{reached}, which does not verify depth: there are no held-out points")
        else:
            found.append(reached)
    if epipolar is not None and epipolar > LEAST_EPIPOLAR:
        found.append(f"matches are {epipolar:.1f} pixels off: the cameras are wrong, and so is the mesh")
    return found or ["the quality of the mesh could not be measured: compare it with the photographs"]


def _covered(figures: Mapping[str, Any]) -> str:
    """What part of the mesh the SfM points test, in words."""
    if (share := figures.get("cover_points")) is None:
        return "which part of the mesh they test is not known"
    off, scored = figures["points_off_plane"], figures["points_scored"]
    if _is_untested(figures):
        return (
            f"{scored - off} of {scored} lie on one plane, and near {figures['cover_off_plane']:.0%} of the mesh off "
            f"it ({figures['area_off_plane']:.0%} of the area) is a point"
        )
    told = f"the mesh is reliable near them, on {share:.0%} of its area"
    return told if off == scored else f"{told} ({off} of {scored} points lie off the dominant plane)"


def _is_untested(figures: Mapping[str, Any]) -> bool:
    """Whether points lie on a plane and the mesh does not: they test a table, not the object on it."""
    area, tested = figures.get("area_off_plane"), figures.get("cover_off_plane")
    return area is not None and tested is not None and area >= UNTESTED and tested < UNTESTED


def page(
    title: str,
    health: Mapping[str, Any],
    figures: Mapping[str, Any],
    commands: Sequence[str],
    notes: Sequence[str] = (),
    has_mesh: bool = True,
    size: Sequence[str] = (),
    frame: WorldFrame = UNKNOWN,
) -> str:
    """The results as a Markdown page; `notes`, on missing parts, come first. `size`: lines of `size_and_cameras`."""
    text = [f"# {escaped(title)}", ""]
    for note in notes:
        text += [f"**{escaped(note)}**", ""]
    text += ["![rendering, photograph, normals, mesh](report.png)", ""]
    if has_mesh:
        text += ["mesh.ply: the coloured mesh", ""]
        text += ["## Reliability", "", *(f"- {escaped(line)}" for line in trust(figures, frame)), ""]
        if figures.get("cover_views") is not None:
            text += [f"![mesh, coloured by the number of photographs that see each part]({COVER})", ""]
    risks = warnings(health)
    if risks:
        text += ["## Warnings of inspect", "", *(f"- {escaped(line)}" for line in risks), ""]
    text += _plan_table(figures.get(PLAN_KEY, {}))
    text += size
    text += ["## Metrics", "", "```text", *lines([("", figures)]), "```", ""]
    text += _curve_table(figures)
    text += _time_table(figures.get(PHASES, {}))
    text += ["## Commands", "", "```bash", *commands, "```", "", "![cameras and photographs](overview.png)"]
    return "\n".join(text) + "\n"


def _plan_table(plan: Mapping[str, str]) -> list[str]:
    """The lines on what was trained and why; none without a plan."""
    rows = [f"| {escaped(name)} | {escaped(text)} |" for name, text in plan.items()]
    return ["## Training plan", "", "| | decision |", "|---|---|", *rows, ""] if rows else []


def _curve_table(figures: Mapping[str, Any]) -> list[str]:
    """The lines on the scores of the training, [step, seconds, dB]; none without scores."""
    if not (curve := figures.get(CURVE)):
        return []
    head = f"| step | seconds | PSNR of four {figures.get('decided_by') or TRAINING} photographs, reduced in size, dB |"
    rows = [f"| {step} | {seconds:.0f} | {score:.2f} |" for step, seconds, score in curve]
    why = "If the last rows still increase, more `--minutes` improve the result."
    return ["## Training", "", why, "", head, "|---|---|---|", *rows, ""]


def _time_table(phases: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The lines on the time of each phase; none without phases."""
    if not phases:
        return []
    named = [
        *phases.items(),
        ("all", {key: sum(spent[key] for spent in phases.values()) for key in ("wall", "processor")}),
    ]
    rows = [f"| {name} | {spent['wall']:.1f} | {spent['processor']:.1f} |" for name, spent in named]
    return ["## Time", "", "| phase | seconds | processor seconds |", "|---|---|---|", *rows, ""]
