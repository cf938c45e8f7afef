"""compare.html: images, meshes and curves of several runs, read from their report pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.io.files import is_file, write_result
from models.evaluation.comparison import Runs, differences, incomparable
from models.evaluation.metric_table import best, rows
from models.report.document import REPORT, document, read_page

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
