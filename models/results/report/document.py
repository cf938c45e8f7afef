"""A self-contained HTML page: data, texts in two languages, scripts, and three.js for meshes.

three.js (MIT) is read from the wheel of trimesh, where it is part of a viewer. Also: texts for Markdown pages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from data.errors import UserError, one_line, reason
from data.io.files import read_regular

REPORT = "report.html"  # the page of a run
MOST_BYTES = 1 << 26  # largest page that is read back
ASSETS = Path(__file__).resolve().parent / "assets"
TEMPLATE, PAGE = "templates/viewer.zip", "viewer.html.template"  # in the resources of trimesh
DATA_BEGIN, DATA_END = '<script id="data" type="application/json">', "</script>"


def document(app: str, title: str, data: Mapping[str, Any], language: str | None) -> bytes:
    """The page of assets/<app>.js with `data`, JSON values, in `language`; None for the language of the browser."""
    content = {"language": language, "title": title, **data}
    own = tuple(_asset(f"{name}.js") for name in ("base", "chart", "split", "mesh", app))
    words = f"const WORDS = {_as_json(json.loads(_asset('words.json')))};"
    scripts = (_asset("probe.js"), mesh_library(), words, *own)
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{_asset("page.css")}</style></head>\n'
        f'<body><main id="page"></main>\n{DATA_BEGIN}'
    )
    body = "".join(f"<script>{script}</script>\n" for script in scripts)
    return f"{head}{_as_json(content)}{DATA_END}\n{body}</body></html>\n".encode("utf-8", "backslashreplace")


def data_of(page: bytes) -> dict[str, Any]:
    """The data of a page; raises ValueError if it is not a page of this program."""
    text = page.decode("utf-8")
    start, end = text.find(DATA_BEGIN), -1
    if start >= 0:
        end = text.find(DATA_END, start)
    if end < 0:
        raise ValueError("it contains no page data")
    found = json.loads(text[start + len(DATA_BEGIN) : end])
    if not isinstance(found, dict):
        raise ValueError("its data is not an object")
    return found


def read_page(path: Path) -> dict[str, Any]:
    """The data of a page file; raises UserError for a file of another program or a too large one, OSError as `open`."""
    content = read_regular(path, MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        return data_of(content)
    except (ValueError, RecursionError) as error:
        raise UserError(reason(error)) from error


@lru_cache
def mesh_library() -> str:
    """three.js from the viewer in the wheel of trimesh; "" if it is missing, which pages report."""
    from trimesh import resources, util

    try:
        archive: Any = util.decompress(resources.get_bytes(TEMPLATE), file_type="zip")
        text = archive[PAGE].read().decode("utf-8")
    except (OSError, KeyError, ValueError):
        return ""
    library = text.partition("<script>")[2].partition("\n(function(){")[0]  # controls and loaders follow it
    return library if "THREE" in library and library.rstrip().endswith(";") else ""


@lru_cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _as_json(content: Any) -> str:
    """JSON for a script element: it cannot end the element, and NaN and Inf become null."""
    return json.dumps(_finite(content), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """The value with None in place of NaN and Inf."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


# Markup within a line, of Markdown and of embedded HTML.
SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|~#$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def escaped(text: str) -> str:
    """`text` as one line of Markdown without markup."""
    return one_line(text).translate(SPECIAL)
