"""The results of the gallery on one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.gallery.runs import RESULTS, read_result
from data.errors import UserError
from data.io.files import write_result

Result = dict[str, Any]
PAGE = "gallery.html"
TITLE = "Gallery"
COLUMNS = (
    *("scene", "masks", "conf", "steps", "PSNR", "blurred", "witness median", "witness 90 %", "Chamfer", "F-score"),
    *("skipped", "went back", "seconds", "collapsed", "rendering | photograph | normals | mesh"),
)
NOTE = (
    "PSNR: dB on held-out photographs, inside the masks where masks took part in training; mean over the seeds, with "
    "the lowest and the highest. Blurred: PSNR of the photographs themselves after a strong blur. Witness: distances "
    "of points on the object from the surface. Witness and Chamfer are in radii of the region of interest. Skipped: "
    "steps with numbers that were not finite. Went back: returns to an earlier checkpoint."
)
STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: 3px 8px; text-align: right; vertical-align: top; white-space: nowrap; }
th { background: #f4f4f4; position: sticky; top: 0; }
td.text { text-align: left; white-space: normal; max-width: 22rem; }
tr.collapsed td { background: #fdecea; }
img { height: 84px; display: block; }
"""


def write_page(out: Path) -> Path:
    """Write the page of all results below `out`; returns its path. Raises UserError if there are none."""
    found = [(path, read_result(path)) for path in sorted((out / RESULTS).glob("*.json"))]
    if not found:
        raise UserError(f"{out / RESULTS}: holds no results; train first, without --page")
    groups = grouped(found)
    rows = "".join(_row(group) for group in groups)
    head = "".join(f"<th>{html.escape(title)}</th>" for title in COLUMNS)
    commits = sorted({str(result["commit"])[:12] for _, result in found})
    collapsed = sum(bool(result["collapse"]) for _, result in found)
    summary = f"{len(found)} runs of {len({r['scene'] for _, r in found})} scenes, {collapsed} collapsed. "
    body = (
        f"<h1>{TITLE}</h1><p>{summary}Commits: {html.escape(', '.join(commits))}.</p>{_totals(found)}"
        f"<p>{NOTE}</p><table><tr>{head}</tr>{rows}</table>"
    )
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{TITLE}</title><style>{STYLE}</style>{body}</html>\n"
    )
    write_result(out / PAGE, page.encode())
    return out / PAGE


def grouped(found: Iterable[tuple[Path, Result]]) -> list[list[tuple[Path, Result]]]:
    """Group the results that differ only by seed; sorted by scene name, recipe and length."""
    groups: dict[tuple, list[tuple[Path, Result]]] = {}
    for path, result in found:
        key = (result["scene"], not result["has_masks"], result["conf"], result["steps"])
        groups.setdefault(key, []).append((path, result))
    return [groups[key] for key in sorted(groups)]


def _totals(found: Sequence[tuple[Path, Result]]) -> str:
    """A table of recipes and lengths: the number of collapsed runs, and medians."""
    keys = sorted({(result["conf"], result["steps"]) for _, result in found})
    lines = []
    for conf, steps in keys:
        own = [result for _, result in found if (result["conf"], result["steps"]) == (conf, steps)]
        collapsed = sum(bool(result["collapse"]) for result in own)
        medians = (_value(own, key, form, median) for key, form in (("psnr", ".2f"), ("chamfer", ".4f")))
        cells = (conf, str(steps), f"{collapsed} of {len(own)}", *medians, str(sum(r["skipped"] for r in own)))
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    titles = ("conf", "steps", "collapsed", "median PSNR", "median Chamfer", "skipped steps")
    return f"<table><tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>{''.join(lines)}</table>"


def _row(group: Sequence[tuple[Path, Result]]) -> str:
    """The runs of one scene, recipe and length with different seeds."""
    results = [result for _, result in group]
    first = results[0]
    reasons = sorted({result["collapse"] for result in results if result["collapse"]})
    collapsed = f"{sum(bool(result['collapse']) for result in results)} of {len(results)}"
    cells = (
        *(html.escape(first["scene"]), "with" if first["has_masks"] else "without", first["conf"], str(first["steps"])),
        _spread(results, "psnr"),
        _value(results, "blurred", ".1f"),
        _value(results, "points_median", ".4f"),
        _value(results, "points_p90", ".4f"),
        _value(results, "chamfer", ".4f"),
        _value(results, "f_score", ".2f"),
        str(sum(result["skipped"] for result in results)),
        str(sum(result["returns"] for result in results)),
        _value(results, "seconds", ".0f"),
    )
    told = html.escape("; ".join([collapsed, *reasons]))
    picture = _picture(next((path for path, result in group if result["collapse"]), group[0][0]))
    inside = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr{' class=collapsed' if reasons else ''}>{inside}<td class=text>{told}</td><td>{picture}</td></tr>\n"


def _value(results: Sequence[Result], key: str, form: str, reduce: Callable[[list[float]], float] = fmean) -> str:
    """The mean, or another reduction, over the runs with a value."""
    values = [result[key] for result in results if result[key] is not None]
    return format(reduce(values), form) if values else "-"


def _spread(results: Sequence[Result], key: str) -> str:
    """Mean, minimum and maximum of several values."""
    values = [result[key] for result in results if result[key] is not None]
    if len(values) < 2:
        return _value(results, key, ".2f")
    return f"{fmean(values):.2f} ({min(values):.1f} to {max(values):.1f})"


def _picture(path: Path) -> str:
    picture = path.with_suffix(".jpg")
    if not picture.is_file():
        return "-"
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(picture.read_bytes()).decode()}">'
