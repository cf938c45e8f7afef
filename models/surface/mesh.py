"""A mesh with its colours, and what is written into its file about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import trimesh


@dataclass(frozen=True)
class Surface:
    """What is written. V vertices."""

    mesh: trimesh.Trimesh
    normals: np.ndarray | None = None  # float32 [V, 3], unit
    rgb: np.ndarray | None = None  # uint8 [V, 3], sRGB
    uv: np.ndarray | None = None  # float32 [V, 2], from the lower left corner of `picture`
    picture: np.ndarray | None = None  # uint8 [h, w, 3], sRGB; its first row at the top


@dataclass(frozen=True)
class About:
    """Where a mesh is from."""

    frame: str  # "world", that of the scene's cameras, or "unit", that of the unit sphere
    units: str  # of its coordinates, in words
    step: int  # finished optimiser steps
    conf: str  # what was trained
    up: str = "not known"  # the axis of its coordinates that points up

    def lines(self) -> list[str]:
        """`key: value`, one line each."""
        return [f"{key}: {' '.join(str(value).split())}" for key, value in vars(self).items()]
