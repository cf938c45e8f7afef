"""result.html: the page of a reconstruction, which shows the text, images and commands of result.md, and the mesh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.io.files import is_file
from data.io.images import read_image
from models.report.document import document, read_page
from models.report.parts import picture_uri

IMAGE = re.compile(r"^!\[.*\]\(([\w.-]+)\)$", re.MULTILINE)
LONGEST = 1600  # longer side of an image in pixels


def result_page(
    title: str, text: str, folder: Path, report: Path | None, figures: Mapping[str, Any], language: str | None
) -> bytes:
    """The page of `text`, Markdown as `models.commands.reconstruction_page` writes it, whose images are in `folder`.

    report: the page of the experiment, which has the delivered mesh; None if there is none. figures: the metrics, which
    give the unit of lengths. A missing image or mesh is left out.
    """
    shown = {} if report is None else _data(report)
    scale = figures.get("world_per_radius")
    unit = "radii" if scale is None else "metres" if figures.get("is_metric") else "camera_units"
    images = {name: folder / name for name in IMAGE.findall(text)}
    pictures = {name: picture_uri(read_image(path)[..., :3], LONGEST) for name, path in images.items() if is_file(path)}
    content = {"text": text, "images": pictures, "ruler": {"scale": scale or 1.0, "unit": unit}}
    return document("result", title, content | {key: shown.get(key) for key in ("mesh", "up", "front")}, language)


def _data(path: Path) -> dict[str, Any]:
    """The data of a page; {} if it is missing or cannot be read."""
    try:
        return read_page(path)
    except (UserError, OSError):
        return {}
