"""A mesh with its colours, and the comments written into its file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import trimesh


@dataclass(frozen=True)
class Surface:
    """A mesh with optional normals, colours and texture. V vertices."""

    mesh: trimesh.Trimesh
    normals: np.ndarray | None = None  # float32 [V, 3], unit
    rgb: np.ndarray | None = None  # uint8 [V, 3], sRGB
    uv: np.ndarray | None = None  # float32 [V, 2], from the lower left corner of `picture`
    picture: np.ndarray | None = None  # texture uint8 [h, w, 3], sRGB; the first row is the top one


@dataclass(frozen=True)
class About:
    """The origin of a mesh: frame, units, step and conf."""

    frame: str  # "world", that of the scene's cameras, or "unit", that of the unit sphere
    units: str  # units of the coordinates, in words
    up: str  # the axis of its coordinates that points up, and how it was found, in words
    step: int  # finished optimiser steps
    conf: str  # the conf of the training

    def lines(self) -> list[str]:
        """The comments of the file as `key: value`, one per line."""
        return [f"{key}: {' '.join(str(value).split())}" for key, value in vars(self).items()]
