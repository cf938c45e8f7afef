"""The history of a training on its page: lists of bounded length, which are thinned as they grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_POINTS = 2000  # entries of a curve, more than a screen has columns; steps of the slider, 100 kB each
MOST_PICTURES = 40  # steps of the slider; 100 kB each
MOST_WARNINGS = 200
STEP = "step"


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
        self.rows.append({STEP: step, **values})
        if len(self.rows) > MOST_POINTS:
            self.rows = self.rows[:-1:2] + self.rows[-1:]

    def add_picture(self, picture: dict[str, Any], photograph: str) -> None:
        """Add an image and the photograph of its `view`."""
        self.pictures = [shown for shown in self.pictures if shown[STEP] < picture[STEP]] + [picture]
        self.photographs[str(picture["view"])] = photograph
        if len(self.pictures) > MOST_PICTURES:
            self.pictures = self.pictures[:-1:2] + self.pictures[-1:]
            shown = {str(kept["view"]) for kept in self.pictures}
            self.photographs = {view: uri for view, uri in self.photographs.items() if view in shown}

    def put_picture(self, picture: dict[str, Any], photograph: str) -> None:
        """Add an image in the order of the steps, in place of one of the same step and view; later ones are kept."""
        place = (picture[STEP], picture["view"])
        others = [shown for shown in self.pictures if (shown[STEP], shown["view"]) != place]
        self.pictures = sorted([*others, picture], key=lambda shown: shown[STEP])[-MOST_PICTURES:]
        self.photographs[str(picture["view"])] = photograph

    def curves(self) -> dict[str, list[float | None]]:
        """The columns of the rows, by name."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [_short(row.get(name)) for row in self.rows] for name in names}

    def parts(self) -> dict[str, Any]:
        """The history as JSON values for the page."""
        return {
            "curves": self.curves(),
            "pictures": self.pictures,
            "photographs": self.photographs,
            "mesh": self.mesh,
            "mesh_words": self.mesh_words,
            "warnings": self.warnings[-MOST_WARNINGS:],
        }


def restored(parts: Mapping[str, Any], step: int) -> History:
    """The history of an earlier session up to `step`; raises ValueError, KeyError or TypeError for invalid data."""
    curves = {str(name): list(column) for name, column in dict(parts["curves"]).items()}
    length = len(curves.get(STEP, ()))
    if any(len(column) != length for column in curves.values()):
        raise ValueError("its curves differ in length")
    rows = [{name: column[at] for name, column in curves.items()} for at in range(min(length, MOST_POINTS))]
    pictures = [dict(shown) for shown in parts["pictures"][:MOST_PICTURES]]
    kept = [shown for shown in pictures if isinstance(shown["view"], int | str) and int(shown[STEP]) <= step]
    photographs = {str(view): str(uri) for view, uri in dict(parts["photographs"]).items()}
    if any(str(shown["view"]) not in photographs for shown in kept):
        raise ValueError("a photograph is missing")
    mesh = parts.get("mesh")
    if mesh is not None and int(dict(mesh)[STEP]) > step:
        mesh = None
    warnings = [str(text) for text in parts["warnings"]]
    return History([row for row in rows if int(row[STEP]) <= step], kept, photographs, mesh, "", warnings)


def _short(value: float | None) -> float | None:
    """Six digits, more than a screen resolves."""
    return None if value is None else float(f"{value:.6g}")
