"""The files of `inspect` and of a reconstruction: overview and health table, and the results with their page.

Jittor is not loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UserError, one_line
from data.io.files import is_file, read_regular, remove, write_result
from data.io.images import read_image, write_image
from data.parsed_scene import ParsedScene, WorldFrame
from data.prepare.inspection.checks import findings
from data.prepare.inspection.epipolar import Finding
from data.prepare.inspection.overview import overview
from data.scenes.config import TRAINING, DatasetConfig
from data.scenes.readers.neus import read_neus
from data.scenes.scene import Scene
from data.scenes.scene_checks import summary
from models.conf import ExperimentConfig
from models.mesh.mesh import read_mesh
from models.plan import PLAN_KEY
from models.results.experiment import Experiment, results_folder
from models.results.metric_tables import DETAILS_FILE, NCC_WITHOUT, WITH_DETAILS, WITHOUT_DETAILS, lines
from models.results.report.document import REPORT, document, escaped, picture_uri, read_page
from models.results.surface_metrics import MISSING_DISTANCE
from models.runs.run_files import RunFiles

HEALTH_FOLDER = "inspect"
HEALTH_FILES = OVERVIEW, HEALTH_PAGE, HEALTH_FIGURES = ("overview.png", "health.md", "health.json")
LEAST_COLUMNS = 60  # columns; narrower terminals wrap the table
INDENT = 2


def write_inspection(conf: ExperimentConfig, scene: Scene) -> tuple[Finding, ...]:
    """Inspect the scene of `conf`; write overview.png, health.md and health.json to `<base_exp_dir>/inspect`.

    They replace those of an earlier call. Raises UserError for a folder that cannot be written.
    """
    folder = results_folder(conf)
    entries = findings(scene)
    traces = RunFiles(folder / HEALTH_FOLDER, HEALTH_FILES)
    try:
        path = Experiment(conf, folder, scene, None).path
        write_image(path(HEALTH_FOLDER, OVERVIEW), overview(scene))
        write_result(path(HEALTH_FOLDER, HEALTH_PAGE), health_page(scene, entries).encode())
        write_result(path(HEALTH_FOLDER, HEALTH_FIGURES), health_json(scene, entries).encode())
    except UserError:
        traces.remove()
        raise
    return entries


def health_table(entries: Sequence[Finding], columns: int) -> Iterator[str]:
    """The findings for a terminal `columns` wide: check, verdict and measurement; below them the consequence."""
    width = max(len(finding.check) for finding in entries) + INDENT
    columns = max(columns, LEAST_COLUMNS)
    for finding in entries:
        head = f"{finding.check.ljust(width)}{finding.verdict.ljust(4 + INDENT)}"
        for text, first in ((finding.figure, head), (finding.consequence, " " * (len(head) + INDENT))):
            rest = " " * (len(head) + (0 if first == head else INDENT))
            yield from textwrap.wrap(one_line(text), columns, initial_indent=first, subsequent_indent=rest)


def health_page(scene: Scene, entries: Sequence[Finding]) -> str:
    """The findings as a Markdown page."""
    lines = [f"# {escaped(scene.name)}", "", escaped(summary(scene)), ""]
    lines += [f"- {escaped(note)}" for note in scene.notes]
    lines += ["", "![overview](overview.png)", "", "| check | verdict | value | consequence for training |"]
    lines += ["| --- | --- | --- | --- |"]
    for finding in entries:
        cells = (finding.check, finding.verdict, finding.figure, finding.consequence)
        lines.append(f"| {' | '.join(map(escaped, cells))} |")
    return "\n".join(lines) + "\n"


def health_json(scene: Scene, entries: Sequence[Finding]) -> str:
    """The findings as JSON."""
    report = {
        "scene": scene.name,
        "views": list(scene.photographs),
        "notes": list(scene.notes),
        "doubts": list(scene.doubts),
        "findings": [dataclasses.asdict(finding) for finding in entries],
    }
    return json.dumps(report, indent=2) + "\n"


MOST_FIGURES_BYTES = 1 << 24
SOME_MISSING, MOST_MISSING = 0.2, 0.5  # fraction of held-out points without a surface: parts or most of it are wrong
# PSNR of test photographs, dB: below the first the views are inconsistent, below the second fine detail is wrong.
LEAST_PSNR, FAIR_PSNR = 16.0, 20.0
COVER = "cover.png"
UNTESTED = 0.05  # fraction of the mesh off the dominant plane, and of that part near points, below which it is none
PHASES, CURVE = "phases", "score_curve"  # keys of metrics.json
UNKNOWN = WorldFrame("")
RESULT, MESH, PAGE, HTML = "result", "mesh.ply", "result.md", "result.html"
REPORT_FOLDER, PICTURES = "report/", "validations_fine"
OF_DETAILS = (WITHOUT_DETAILS, WITH_DETAILS, DETAILS_FILE)
OF_REPORT = ("report.png", COVER, "metrics.json", *OF_DETAILS)  # the results besides the mesh and HEALTH_FILES
LEAST_SCORED = 20  # points on the object: with fewer, such as 4 on a jug without texture, their share says nothing
SOME_THIN, MOST_TESTED = 0.1, 0.5  # fraction of the mesh, and of its thin walls: thickness is reported as untested
LEAST_EPIPOLAR = 1.5  # pixels of epipolar distance from which the cameras are wrong, as in inspect


def read_figures(path: Path) -> dict[str, Any]:
    """The JSON object of a file; {} if it is missing or damaged."""
    try:
        value = json.loads(read_regular(path, MOST_FIGURES_BYTES)) if path.is_file() else {}
    except (OSError, ValueError, RecursionError, UserError):
        return {}
    return value if isinstance(value, dict) else {}


def warnings(health: Mapping[str, Any]) -> list[str]:
    """A sentence for each doubt and each finding of `inspect` that is not good, the worst first."""
    entries = [entry for entry in health.get("findings", ()) if entry["verdict"] != "good"]
    entries.sort(key=lambda entry: entry["verdict"] != "bad")
    return [*map(one_line, health.get("doubts", ())), *(one_line(Finding(**entry).line) for entry in entries)]


def trust(figures: Mapping[str, Any], frame: WorldFrame = UNKNOWN) -> list[str]:
    """Sentences on the reliability of the result, from its metrics and photographs without cameras; at least one."""
    sentences = [f"{frame.doubt}; do not rely on the mesh or measure on it"] if frame.doubt else []
    if frame.limit:
        sentences.append(frame.limit)
    if frame.without_camera:
        sentences.append(f"{frame.left_out}; what only they show is missing or invented: take photographs between them")
    missing, psnr, epipolar = (figures.get(name) for name in ("points_missing", "psnr", "epipolar_px"))
    if figures.get("counts_first") == "psnr_mask":
        psnr = figures.get("psnr_mask")
    is_thin = (figures.get("thin_area") or 0.0) >= SOME_THIN and figures["thin_tested"] < MOST_TESTED
    is_off = epipolar is not None and epipolar > LEAST_EPIPOLAR
    if missing is not None and (scored := figures.get("points_scored", LEAST_SCORED)) < LEAST_SCORED:
        few = f"only {scored} SfM points are on the object, too few to test it"
        sentences.append(f"{few}: compare it with the photographs")
    elif missing is not None:
        near = f"{1 - missing:.0%} of the SfM points have a surface within {MISSING_DISTANCE:g} radii"
        covered = _covered(figures, not (is_off or frame.limit)) + (", except thin walls" if is_thin else "")
        if missing > MOST_MISSING:
            sentences.append(
                f"only {near}: most of the mesh is wrong, do not measure on it; if parts of the object are missing, "
                "extract it again with --no-clean"
            )
        elif missing > SOME_MISSING:
            sentences.append(f"{near}: parts of the mesh are wrong, compare it with the photographs")
        elif _is_untested(figures):
            sentences.append(f"{near}, but {covered}: the object itself is not tested, compare it with the photographs")
        else:
            sentences.append(
                f"{near}, and {covered}" if not frame.doubt else f"{near}, which does not show wrong cameras"
            )
    if is_thin:
        sentences.append(
            f"{figures['thin_area']:.0%} of the mesh's area are walls thinner than 0.1 radii, and SfM points test both "
            f"sides of {figures['thin_tested']:.0%} of it: thin walls become thicker, do not measure their thickness"
        )
    if (views := figures.get("cover_views")) is not None:
        sentences.append(
            f"3 or more of {figures['photographs']} photographs with cameras see {views:.0%} of the mesh's area, and "
            f"at least {figures['views_median']:.0f} see half of it ({COVER})"
        )
    if (sides := figures.get("sides_missing")) and not frame.doubt:
        sentences.append(
            f"no photograph with a camera is from {sides}: if the object has these sides, take photographs there, each "
            "overlapping the next by two thirds"
        )
    if psnr is not None:
        reached = f"PSNR of test photographs {psnr:.1f} dB"
        if psnr < LEAST_PSNR:
            sentences.append(f"{reached}: the views are not consistent with one shape")
        elif psnr < FAIR_PSNR:
            sentences.append(f"{reached}: fine detail is not reliable")
        elif missing is None:
            sentences.append(f"{reached}, which does not verify depth: there are no held-out points")
        else:
            sentences.append(reached)
    if (ncc := figures.get("ncc")) is not None:
        without = figures.get(NCC_WITHOUT)
        less = "" if without is None else f" (without details of the mesh {without:.2f})"
        sentences.append(f"test photographs correlate with others across the mesh by {ncc:.2f}{less}")
    if is_off:
        sentences.append(f"matches are {epipolar:.1f} pixels off: the cameras are wrong, and so is the mesh")
    return sentences or ["the quality of the mesh could not be measured: compare it with the photographs"]


def _covered(figures: Mapping[str, Any], is_reliable: bool) -> str:
    """What part of the mesh the SfM points test, in words; `is_reliable`: nothing else says that it is not."""
    if (share := figures.get("cover_points")) is None:
        return "which part of the mesh they test is not known"
    off, scored = figures["points_off_plane"], figures["points_scored"]
    if _is_untested(figures):
        return (
            f"{scored - off} of {scored} lie on one plane, and near {figures['cover_off_plane']:.0%} of the mesh off "
            f"it ({figures['area_off_plane']:.0%} of the area) is a point"
        )
    sentence = f"{'the mesh is reliable near them, on' if is_reliable else 'they test'} {share:.0%} of its area"
    return sentence if off == scored else f"{sentence} ({off} of {scored} points lie off the dominant plane)"


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
    if NCC_WITHOUT in figures:
        text += [f"![without details]({WITHOUT_DETAILS})", f"![with the details of photographs]({WITH_DETAILS})", ""]
    if has_mesh:
        text += ["mesh.ply: the coloured mesh", ""]
        text += ["## Reliability", "", *(f"- {escaped(line)}" for line in trust(figures, frame)), ""]
        if figures.get("cover_views") is not None:
            text += [f"![mesh, coloured by the number of photographs that see each part]({COVER})", ""]
    for heading, sentences in (("Photographs", frame.notes), ("Warnings of inspect", warnings(health))):
        if sentences:
            text += [f"## {heading}", "", *(f"- {escaped(line)}" for line in sentences), ""]
    text += _table("Training plan", "| | decision |", list(figures.get(PLAN_KEY, {}).items()))
    text += size
    text += ["## Metrics", "", "```text", *lines([("", figures)]), "```", ""]
    head = f"| step | seconds | PSNR of four {figures.get('decided_by') or TRAINING} photographs, reduced in size, dB |"
    rows = [(f"{step}", f"{seconds:.0f}", f"{score:.2f}") for step, seconds, score in figures.get(CURVE) or ()]
    text += _table("Training", head, rows, "If the last rows still increase, more `--minutes` improve the result.", "")
    spent = {name: (phase["wall"], phase["processor"]) for name, phase in figures.get(PHASES, {}).items()}
    if spent:
        spent["all"] = sum(wall for wall, _ in spent.values()), sum(processor for _, processor in spent.values())
    rows = [(name, f"{wall:.1f}", f"{processor:.1f}") for name, (wall, processor) in spent.items()]
    text += _table("Time", "| phase | seconds | processor seconds |", rows)
    text += ["## Commands", "", "```bash", *commands, "```", "", "![cameras and photographs](overview.png)"]
    return "\n".join(text) + "\n"


def _table(title: str, head: str, rows: Sequence[Sequence[str]], *before: str) -> list[str]:
    """The lines of a section with a table below its heads; none without rows. `before`: lines before the table."""
    lines = [f"| {' | '.join(map(escaped, row))} |" for row in rows]
    return [f"## {title}", "", *before, head, "| --- " * len(rows[0]) + "|", *lines, ""] if rows else []


def size_and_cameras(dataset: DatasetConfig, mesh: Path | None) -> list[str]:
    """The sections "Size" and "Cameras" of the page, as lines.

    `mesh`: the mesh file in the world frame; None if there is none. Raises SceneError if the scene cannot be read.
    """
    parsed = read_neus(Path(dataset.data_dir), dataset)
    frame = parsed.frame or UNKNOWN
    extents = None if mesh is None else read_mesh(mesh).extents
    text = ["## Size", "", *(f"- {escaped(line)}" for line in _size(parsed, frame, extents)), ""]
    return text + _cameras(frame.camera_errors)


def pixel_size(parsed: ParsedScene) -> float:
    """The ground sampling distance: length in world units that a pixel shows at the centre of the region of interest.

    The median over the images. A scene of NeuS has a region of interest.
    """
    centre = (np.eye(4) if parsed.scale_mat is None else parsed.scale_mat)[:, 3]
    depths = np.array([(np.linalg.inv(image.c2w) @ centre)[2] for image in parsed.images])
    focals = np.array([image.lens.intrinsics[0, 0] for image in parsed.images])
    return float(np.median(np.abs(depths) / focals))


def _size(parsed: ParsedScene, frame: WorldFrame, extents: Sequence[float] | None) -> list[str]:
    """The facts on size, scale, up direction and resolution, one per line."""
    unit = " m" if frame.is_metric else ""
    pixel = pixel_size(parsed)
    facts = []
    error = "" if frame.scale_error is None else f", ± {frame.scale_error:.2%}"
    if extents is not None:
        facts.append(
            f"extent of the mesh along x, y, z: {' x '.join(f'{value:.4g}' for value in extents)}{unit}{error}"
        )
    unknown = "not known, so the unit of the mesh is arbitrary; --marker, --scale or GPS positions give it"
    facts.append(f"scale: {frame.scale_source}{error}" if frame.is_metric else f"scale: {unknown}")
    facts.append(f"up: {frame.up_source or 'not known'}")
    distance = f"{pixel / 1e-3:.3g} mm" if frame.is_metric else f"{pixel:.3g} units"
    facts.append(f"ground sampling distance: {distance} per pixel of the images of the scene folder")
    return facts


def _cameras(errors: Mapping[str, float]) -> list[str]:
    """The reprojection error of each photograph, the largest first."""
    rows = [(name, f"{error:.2f}") for name, error in sorted(errors.items(), key=lambda entry: -entry[1])]
    mean = f"Mean reprojection error of the SfM points: {sum(errors.values()) / max(1, len(errors)):.2f} px."
    return _table("Cameras", "| photograph | reprojection error, px |", rows, mean, "")


def collect(folder: Path, has_mesh: bool = True) -> None:
    """Copy images, metrics and pages to the folder of results; raises UserError if writing fails.

    Without a mesh, the results of an earlier one are removed, and the newest validation image is used.
    """
    health = [folder / HEALTH_FOLDER / name for name in HEALTH_FILES]
    for path in filter(Path.is_file, [*health, *(folder / REPORT_FOLDER / name for name in OF_REPORT if has_mesh)]):
        write_result(folder / RESULT / path.name, read_regular(path))
    if has_mesh:
        return
    for name in (MESH, *OF_REPORT):
        remove(folder / RESULT / name)
    pictures = sorted((folder / PICTURES).glob("*.png"))  # by the step, which their names begin with
    if pictures:
        write_result(folder / RESULT / "report.png", read_regular(pictures[-1]))


def write_pages(folder: Path, title: str, text: str, figures: Mapping[str, Any], language: str | None) -> None:
    """Write result.md, and result.html from it; raises UserError if writing fails."""
    write_result(folder / RESULT / PAGE, text.encode("utf-8", "surrogateescape"))  # paths of any bytes
    report = folder / REPORT if (folder / RESULT / MESH).is_file() else None
    write_result(folder / RESULT / HTML, result_page(title, text, folder / RESULT, report, figures, language))


MARKDOWN_IMAGE = re.compile(r"^!\[.*\]\(([\w.-]+)\)$", re.MULTILINE)
LONGEST_IMAGE = 1600  # longer side of an image in pixels


def result_page(
    title: str, text: str, folder: Path, report: Path | None, figures: Mapping[str, Any], language: str | None
) -> bytes:
    """The page of `text`, Markdown as `page` writes it, whose images are in `folder`.

    report: the page of the experiment, which has the delivered mesh; None if there is none. figures: the metrics, which
    give the unit of lengths. A missing image or mesh is left out.
    """
    page_data: dict[str, Any] = {}
    with contextlib.suppress(UserError, OSError):
        page_data = {} if report is None else read_page(report)
    scale = figures.get("world_per_radius")
    unit = "radii" if scale is None else "metres" if figures.get("is_metric") else "camera_units"
    images = {name: folder / name for name in MARKDOWN_IMAGE.findall(text)}
    pictures = {
        name: picture_uri(read_image(path)[..., :3], LONGEST_IMAGE) for name, path in images.items() if is_file(path)
    }
    ruler = {"scale": scale or 1.0, "unit": unit, "error": figures.get("scale_error")}
    content = {"text": text, "images": pictures, "ruler": ruler}
    return document("result", title, content | {key: page_data.get(key) for key in ("mesh", "up", "front")}, language)
