"""Adds the results of modes to the page of a training: evaluate, validate_mesh, validate_image."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.io.files import is_file, write_result
from models.mesh.mesh import Surface
from models.results.context import EvalContext
from models.results.evaluate import Evaluated
from models.results.image_metrics import ValidationImage
from models.results.metric_tables import rows as figure_rows
from models.results.report.document import REPORT, document, read_page
from models.results.report.parts import mesh_part
from models.results.report.training_page import History, earlier, fixed_parts, page, shown_picture, status_of


def with_evaluation(context: EvalContext, found: Evaluated, language: str | None) -> None:
    """Add metrics, image and mesh of an evaluation to the page; without a page, create one."""
    content, history = _page(context)
    if not content:
        content = fixed_parts(context.experiment) | {
            "status": status_of(context.step, context.step, context.seconds, "result")
        }
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
    """The content of the page and its whole history."""
    return earlier(context.experiment.folder / REPORT, sys.maxsize, context.log)


def _put_mesh(context: EvalContext, history: History, surface: Surface) -> None:
    """Replace the mesh; one that is too large for the page is logged."""
    try:
        history.mesh, history.mesh_words = {"step": context.step, **mesh_part(surface)}, ""
    except UserError as error:
        context.log.warn(f"the mesh cannot be added to the page: {error}")


def _write(context: EvalContext, content: dict[str, Any], history: History, language: str | None = None) -> None:
    """Write the page; a failure is logged."""
    chosen = language or content.pop("language", None)
    try:
        write_result(context.experiment.folder / REPORT, page(context.experiment, content, history, chosen))
    except UserError as error:
        context.log.warn(f"the results cannot be added to the page: {error}")
