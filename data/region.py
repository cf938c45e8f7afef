"""The region of interest: the sphere that becomes the unit sphere of the working frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.capture import SparsePoints
from data.scene import SceneError


@dataclass(frozen=True, eq=False)
class Region:
    """A sphere in the world frame."""

    centre: np.ndarray  # [3]
    radius: float
    how: str  # it was found, in one sentence

    @property
    def scale_mat(self) -> np.ndarray:
        """[4, 4], unit sphere to world."""
        matrix = np.diag([self.radius] * 3 + [1.0])
        matrix[:3, 3] = self.centre
        return matrix


def parse_roi(text: str) -> Region:
    """The sphere that "x y z r" names; raises SceneError for any other text."""
    values = np.array([float(part) for part in text.split()])
    return Region(values[:3], float(values[3]), f"region of interest: --roi {text}")


def find_region(
    intrinsics: np.ndarray,
    c2w: np.ndarray,
    sizes: np.ndarray,
    masks: Sequence[np.ndarray] | None,
    points: SparsePoints | None,
) -> Region:
    """The sphere that masks, points or cameras support best."""
    raise SceneError("the scene has no region of interest of its own; pass --roi")
