"""report.html: the page of a training and its history, updated during the training, and with the results of modes.

Its cost is limited to one per cent of the training time: it is not written again before a hundred times the time spent
on it has passed. The overview image of the scene is rendered once, before the first step. The last state is always
written. `evaluate`, `validate_mesh` and `validate_image` add their results to it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from data.cameras import mean_up
from data.errors import UserError, one_line, reason
from data.io.clock import phase
from data.io.files import is_file, write_result
from data.pixels import to_uint8
from data.prepare.inspection.overview import overview
from data.scenes.scene_checks import facts
from models.conf import flat
from models.config.hocon import base_values, same
from models.config.program import program_version
from models.machine import backend, memory
from models.mesh.mesh import Surface
from models.results.callback import FINISHED, TRAINING, Callback
from models.results.context import EvalContext
from models.results.experiment import Experiment
from models.results.image_metrics import ValidationImage
from models.results.metric_tables import rows as figure_rows
from models.results.render import distance_picture, error_picture, normal_picture
from models.results.report.document import (
    REPORT,
    camera_lines,
    document,
    linked_files,
    mesh_part,
    picture_uri,
    read_page,
)
from models.runs.logger import RunLogger

TIME_SHARE = 0.01  # fraction of the training time
REPORTED_PACKAGES = ("jittor", "numpy", "opencv-python-headless", "trimesh")


class TrainingReport(Callback):
    """The report of a training, a `Callback` that writes report.html."""

    name = "the report"

    def __init__(
        self, experiment: Experiment, log: RunLogger, language: str | None, step: int, has_surface: bool
    ) -> None:
        """`step`: the step from which the training resumes; the history of an earlier session is kept up to it."""
        self._experiment, self._log, self._language = experiment, log, language
        makes_meshes = "mesh_soon" if experiment.conf.train.val_mesh_freq > 0 else "mesh_none"
        self._mesh_words = makes_meshes if has_surface else "mesh_never"
        self._first_step = step
        self._path = experiment.folder / REPORT
        self._history = earlier(self._path, step, log)[1] if step > 0 else History()
        self._spent = 0.0
        self._fixed = fixed_parts(experiment)
        self._earlier_warnings = list(self._history.warnings)
        self._waits_for_mesh: tuple[int, Surface] | None = None
        self._begun = time.perf_counter()

    def scalars(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Add a row to the curves."""
        with self._timed():
            row = {name: float(value) for name, value in values.items() if name != "Statistics/s_val"}
            if (s_val := values.get("Statistics/s_val")) is not None and s_val > 0:
                row["inv_s"] = 1.0 / float(s_val)
            self._history.add_row(step, row | {"seconds": seconds, "memory": memory.held_bytes() / memory.GB})

    def picture(self, step: int, picture: ValidationImage) -> None:
        """Add an image to the slider."""
        with self._timed():
            self._history.add_picture(*shown_picture(step, picture))

    def mesh(self, step: int, surface: Surface) -> None:
        """Keep the newest mesh until the next write."""
        self._waits_for_mesh = (step, surface)

    @phase("report")
    def write(self, step: int, seconds: float, state: str) -> None:
        """Write the page if it is due; raises UserError if it cannot be written."""
        if state == TRAINING and self._spent > TIME_SHARE * (time.perf_counter() - self._begun):
            return
        with self._timed():
            if self._waits_for_mesh is not None:
                (at, surface), self._waits_for_mesh = self._waits_for_mesh, None
                try:
                    self._history.mesh, self._history.mesh_words = {"step": at, **mesh_part(surface)}, ""
                except UserError as error:
                    self._history.mesh, self._history.mesh_words = None, str(error)
            history, conf = self._history, self._experiment.conf.train
            history.warnings = [*self._earlier_warnings, *self._log.warnings]
            now = time.perf_counter() - self._begun
            session = {"session_steps": step - self._first_step, "session_seconds": now, "val_freq": conf.val_freq}
            end = step if state == FINISHED else conf.end_iter
            status = status_of(step, end, seconds, state, **session, mesh=self._mesh_words)
            content = {**self._fixed, "status": status}
            write_result(self._path, page(self._experiment, content, history, self._language))
        if state != TRAINING:
            whole = time.perf_counter() - self._begun
            self._log.note(f"writing {self._path} took {self._spent:.2f} s of the {whole:.0f} s of training")

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the time of the enclosed block as the report's."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - begun


def fixed_parts(experiment: Experiment) -> dict[str, Any]:
    """The parts of the page that do not change during a training."""
    scene, values, base = experiment.scene, flat(experiment.conf), base_values(experiment.conf.model.type)
    differs = [[key, _text(base.get(key)), _text(value)] for key, value in values.items() if not same(value, base, key)]
    return {
        "about": f"{scene.name} · {experiment.conf.model.type}",
        "up": mean_up(scene.c2w).tolist(),
        "front": scene.c2w[:, :3, 3].mean(axis=0).tolist(),
        "cameras": camera_lines(scene),
        "scene": {"facts": [[key, value] for key, value in facts(scene).items()], "notes": list(scene.notes)},
        "plan": [list(row) for row in experiment.plan.rows],
        "overview": picture_uri(overview(scene), longest=1200),
        "figures": [],
        "files": [],
        "conf": {"differs": differs, "all": [[key, _text(value)] for key, value in values.items()]},
        "environment": _environment(experiment),
    }


def _environment(experiment: Experiment) -> list[list[str]]:
    """Command, device, versions and folder of the run."""
    rows = [["folder", str(experiment.folder.absolute())], ["command", one_line(" ".join(sys.argv))]]
    rows += [["version", program_version()]]
    rows += [["started", datetime.now().astimezone().isoformat(" ", timespec="seconds")]]
    rows += [["device", backend.device_info().line().removeprefix("device ")], ["processor", str(os.cpu_count())]]
    rows += [["system", platform.platform()], ["python", platform.python_version()]]
    for package in REPORTED_PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            rows.append([package, version(package)])
    return rows


def shown_picture(step: int, picture: ValidationImage) -> tuple[dict[str, Any], str]:
    """An image encoded for the page, and its photograph."""
    rendered, figures = picture.rendered, picture.figures
    panels = {"rendering": picture_uri(to_uint8(rendered.rgb))}
    if rendered.normal.any():
        panels["normals"] = picture_uri(normal_picture(rendered.normal, picture.c2w))
    panels["error"] = picture_uri(error_picture(rendered.rgb, picture.photograph))
    panels["distance"] = picture_uri(distance_picture(rendered.distance, rendered.opacity))
    entry: dict[str, Any] = {"step": step, "view": f"{picture.group} {picture.view}", "group": picture.group}
    entry |= {"name": picture.name, "panels": panels, "psnr": figures.psnr, "ssim": figures.ssim}
    entry |= {"psnr_mask": figures.psnr_mask, "iou": figures.iou}
    return entry, picture_uri(to_uint8(picture.photograph))


def earlier(path: Path, step: int, log: RunLogger) -> tuple[dict[str, Any], History]:
    """The content of a page and its history up to `step`; ({}, an empty one) if there is none. A damaged page is
    logged.
    """
    try:
        content = read_page(path) if is_file(path) else {}
        return content, restored(content, step) if content else History()
    except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warn(f"{path}: cannot be read and is created again, without its history ({reason(error)})")
        return {}, History()


def page(experiment: Experiment, content: Mapping[str, Any], history: History, language: str | None) -> bytes:
    """The page with this history and links to the files of the experiment."""
    content = {**content, **history.parts(), "files": linked_files(experiment.folder), "language": language}
    return document("report", experiment.folder.absolute().name, content, language)


def status_of(step: int, end: int, seconds: float, state: str, **session: Any) -> dict[str, Any]:
    """The status of a training, updated now; `session`: values other than those of a page without a training."""
    status = {"step": step, "end": end, "seconds": seconds, "state": state, "updated": time.time()}
    status |= {"session_steps": 0, "session_seconds": 0.0, "val_freq": 0, "mesh": "mesh_none"}
    return status | session


def _text(value: Any) -> str:
    """A value as a conf has it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


MOST_ROWS = 2000  # entries of a curve, more than a screen has columns; steps of the slider, 100 kB each
MOST_PICTURES = 40  # steps of the slider; 100 kB each
MOST_SHOWN_WARNINGS = 200
STEP_COLUMN = "step"


@dataclass
class History:
    """Curves and images over the steps of a training; when a list is full, every second entry is removed."""

    rows: list[dict[str, float]] = field(default_factory=list)  # logged scalars by name, with `step`
    pictures: list[dict[str, Any]] = field(default_factory=list)
    photographs: dict[str, str] = field(default_factory=dict)  # by view, the photographs of `pictures`
    mesh: dict[str, Any] | None = None
    mesh_words: str = ""  # why there is no mesh
    warnings: list[str] = field(default_factory=list)

    def add_row(self, step: int, values: Mapping[str, float]) -> None:
        """Add the logged scalars of a step."""
        self.rows.append({STEP_COLUMN: step, **values})
        if len(self.rows) > MOST_ROWS:
            self.rows = self.rows[:-1:2] + self.rows[-1:]

    def add_picture(self, picture: dict[str, Any], photograph: str) -> None:
        """Add an image and the photograph of its `view`."""
        self.pictures = [entry for entry in self.pictures if entry[STEP_COLUMN] < picture[STEP_COLUMN]] + [picture]
        self.photographs[str(picture["view"])] = photograph
        if len(self.pictures) > MOST_PICTURES:
            self.pictures = self.pictures[:-1:2] + self.pictures[-1:]
            views = {str(entry["view"]) for entry in self.pictures}
            self.photographs = {view: uri for view, uri in self.photographs.items() if view in views}

    def put_picture(self, picture: dict[str, Any], photograph: str) -> None:
        """Add an image in the order of the steps, in place of one of the same step and view; later ones are kept."""
        place = (picture[STEP_COLUMN], picture["view"])
        others = [entry for entry in self.pictures if (entry[STEP_COLUMN], entry["view"]) != place]
        self.pictures = sorted([*others, picture], key=lambda entry: entry[STEP_COLUMN])[-MOST_PICTURES:]
        self.photographs[str(picture["view"])] = photograph

    def parts(self) -> dict[str, Any]:
        """The history as JSON values for the page; curves are columns by name."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        digits = [
            {name: float(f"{value:.6g}") for name, value in row.items() if value is not None} for row in self.rows
        ]
        return {
            "curves": {name: [row.get(name) for row in digits] for name in names},
            "pictures": self.pictures,
            "photographs": self.photographs,
            "mesh": self.mesh,
            "mesh_words": self.mesh_words,
            "warnings": self.warnings[-MOST_SHOWN_WARNINGS:],
        }


def restored(parts: Mapping[str, Any], step: int) -> History:
    """The history of an earlier session up to `step`; raises ValueError, KeyError or TypeError for invalid data."""
    curves = {str(name): list(column) for name, column in dict(parts["curves"]).items()}
    length = len(curves.get(STEP_COLUMN, ()))
    if any(len(column) != length for column in curves.values()):
        raise ValueError("its curves differ in length")
    rows = [{name: column[at] for name, column in curves.items()} for at in range(min(length, MOST_ROWS))]
    pictures = [dict(entry) for entry in parts["pictures"][:MOST_PICTURES]]
    earlier_pictures = [
        entry for entry in pictures if isinstance(entry["view"], int | str) and int(entry[STEP_COLUMN]) <= step
    ]
    photographs = {str(view): str(uri) for view, uri in dict(parts["photographs"]).items()}
    if any(str(entry["view"]) not in photographs for entry in earlier_pictures):
        raise ValueError("a photograph is missing")
    mesh = parts.get("mesh")
    if mesh is not None and int(dict(mesh)[STEP_COLUMN]) > step:
        mesh = None
    warnings = [str(text) for text in parts["warnings"]]
    return History(
        [row for row in rows if int(row[STEP_COLUMN]) <= step], earlier_pictures, photographs, mesh, "", warnings
    )


def add_results(
    context: EvalContext,
    *,
    picture: ValidationImage | None = None,
    surface: Surface | None = None,
    metrics: Mapping[str, Any] | None = None,
    language: str | None = None,
) -> None:
    """Add an image, a mesh of the working frame and metrics to the page. Without a page, only metrics create one.

    Failures are logged.
    """
    content, history = earlier(context.experiment.folder / REPORT, sys.maxsize, context.log)
    if metrics is not None:
        status = status_of(context.step, context.step, context.seconds, "result")
        content = content or fixed_parts(context.experiment) | {"status": status}
        content["figures"] = figure_rows([("", metrics)])
    if not content:
        return
    if picture is not None:
        history.put_picture(*shown_picture(context.step, picture))
    try:
        if surface is not None:
            history.mesh, history.mesh_words = {"step": context.step, **mesh_part(surface)}, ""
    except UserError as error:
        context.log.warn(f"the mesh cannot be added to the page: {error}")
    language = language or content.pop("language", None)
    try:
        write_result(context.experiment.folder / REPORT, page(context.experiment, content, history, language))
    except UserError as error:
        context.log.warn(f"the results cannot be added to the page: {error}")


def with_warning(path: Path, text: str) -> None:
    """Add a warning to the page of a training, if it can be read; raises UserError if it cannot be written."""
    try:
        content = read_page(path) if is_file(path) else {}
    except (UserError, OSError):
        return
    if content:
        warnings = [*content.get("warnings", ()), text]
        language = content.pop("language", None)
        content |= {"warnings": warnings, "language": language}
        write_result(path, document("report", path.absolute().parent.name, content, language))
