"""Adds the results of modes to the page of a training: evaluate, validate_mesh, validate_image."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.io.files import is_file, write_result
from models.evaluation.evaluate import Evaluated
from models.evaluation.image_metrics import ValidationImage
from models.evaluation.metric_table import rows as figure_rows
from models.report.document import REPORT, document, read_page
from models.report.history import History, restored
from models.report.linked_files import linked_files
from models.report.parts import mesh_part
from models.report.training_page import fixed_parts, shown_picture, title_of
from models.results.context import EvalContext
from models.surface.mesh import Surface


def with_evaluation(context: EvalContext, found: Evaluated, language: str | None) -> None:
    """Add metrics, image and mesh of an evaluation to the page; without a page, create one."""
    content, history = _page(context)
    if not content:
        content = fixed_parts(context.experiment) | {"status": _status(context)}
    content["figures"] = figure_rows([("", found.values)])
    history.put_picture(*shown_picture(context.step, found.picture))
    if found.surface is not None:
        _put_mesh(context, history, found.surface)
    _write(context, content, history, language)


def with_picture(context: EvalContext, picture: ValidationImage) -> None:
    """Add an image to the page, if there is one."""
    content, history = _page(context)
    if content:
        history.put_picture(*shown_picture(context.step, picture))
        _write(context, content, history)


def with_mesh(context: EvalContext, surface: Surface) -> None:
    """Show a mesh of the working frame on the page, if there is one."""
    content, history = _page(context)
    if content:
        _put_mesh(context, history, surface)
        _write(context, content, history)


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


def _page(context: EvalContext) -> tuple[dict[str, Any], History]:
    """The content of the page and its history; ({}, an empty one) if there is none. A damaged page is logged."""
    path = context.experiment.folder / REPORT
    try:
        content = read_page(path) if is_file(path) else {}
        return content, restored(content, sys.maxsize) if content else History()
    except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        context.log.warn(f"{path}: cannot be read and is created again ({error})")
        return {}, History()


def _status(context: EvalContext) -> dict[str, Any]:
    """The status of a page without a training."""
    status = {"step": context.step, "end": context.step, "seconds": context.seconds, "state": "result"}
    status |= {"updated": time.time(), "session_steps": 0, "session_seconds": 0.0, "val_freq": 0}
    return status | {"mesh": "mesh_none"}


def _put_mesh(context: EvalContext, history: History, surface: Surface) -> None:
    """Replace the mesh; one that is too large for the page is logged."""
    try:
        history.mesh, history.mesh_words = {"step": context.step, **mesh_part(surface)}, ""
    except UserError as error:
        context.log.warn(f"the mesh cannot be added to the page: {error}")


def _write(context: EvalContext, content: dict[str, Any], history: History, language: str | None = None) -> None:
    """Write the page; a failure is logged."""
    experiment = context.experiment
    content |= history.parts() | {"files": linked_files(experiment.folder)}
    chosen = language or content.pop("language", None)
    try:
        page = document("report", title_of(experiment), {**content, "language": chosen}, chosen)
        write_result(experiment.folder / REPORT, page)
    except UserError as error:
        context.log.warn(f"the results cannot be added to the page: {error}")
