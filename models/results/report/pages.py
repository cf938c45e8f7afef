"""compare.html and result.html: the pages of several runs, and of a reconstruction, from the report pages of runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.io.files import is_file, write_result
from data.io.images import read_image
from models.results.comparison import Runs, differences, incomparable
from models.results.metric_tables import best, rows
from models.results.report.document import REPORT, document, read_page
from models.results.report.parts import picture_uri

PAGE = "compare.html"
SHOWN = ("pictures", "photographs", "mesh", "mesh_words", "status", "curves", "up", "front")  # of the page of a run


def write_page(
    folders: Sequence[Path], found: Runs, output: Path | None, language: str | None, say: Callable[[str], None]
) -> None:
    """Write the page and log its path; raises UserError if the path given by the user cannot be written."""
    path = output or folders[0] / PAGE
    names = [str(folder) for folder in folders]
    figures = rows(found)
    content = {
        "names": names,
        "differs": [list(row) for row in differences(found)],
        "figures": figures,
        "best": [[] for _ in figures] if incomparable(found) else best(found),
        "runs": [_run(folder, say) for folder in folders],
    }
    try:
        write_result(path, document("compare", " | ".join(Path(name).name for name in names), content, language))
    except UserError as error:
        if output is not None:
            raise
        say(f"no page: {error}, or pass another file with --output FILE.html")
    else:
        say(f"page with images and meshes: {path}")


def _run(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The data of a run's page. Without a page only the metrics are returned, and a warning is logged."""
    path = folder / REPORT
    try:
        if not is_file(path):
            say(f"{folder}: has no {REPORT}, so the page shows only its metrics")
            return {}
        content = read_page(path)
    except (UserError, OSError) as error:
        say(f"{path}: cannot be read ({error}), so the page shows only its metrics")
        return {}
    return {key: content.get(key) for key in SHOWN}


IMAGE = re.compile(r"^!\[.*\]\(([\w.-]+)\)$", re.MULTILINE)
LONGEST = 1600  # longer side of an image in pixels


def result_page(
    title: str, text: str, folder: Path, report: Path | None, figures: Mapping[str, Any], language: str | None
) -> bytes:
    """The page of `text`, Markdown as `models.results.report.reconstruction` writes it, whose images are in `folder`.

    report: the page of the experiment, which has the delivered mesh; None if there is none. figures: the metrics, which
    give the unit of lengths. A missing image or mesh is left out.
    """
    shown: dict[str, Any] = {}
    with contextlib.suppress(UserError, OSError):
        shown = {} if report is None else read_page(report)
    scale = figures.get("world_per_radius")
    unit = "radii" if scale is None else "metres" if figures.get("is_metric") else "camera_units"
    images = {name: folder / name for name in IMAGE.findall(text)}
    pictures = {name: picture_uri(read_image(path)[..., :3], LONGEST) for name, path in images.items() if is_file(path)}
    content = {"text": text, "images": pictures, "ruler": {"scale": scale or 1.0, "unit": unit}}
    return document("result", title, content | {key: shown.get(key) for key in ("mesh", "up", "front")}, language)
