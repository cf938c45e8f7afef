"""Rays, and batches of pixels with their rays.

R is the number of rays. All arrays are float32, in the working (unit-sphere) frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rays:
    """Rays `origins + t * directions`, sampled for t in [near, far]."""

    # float32 arrays, or Vars on the device
    origins: Any  # [R, 3]
    directions: Any  # [R, 3], unit length
    near: Any  # [R, 1]
    far: Any  # [R, 1]

    def __len__(self) -> int:
        """The number of rays R."""
        return len(self.origins)

    def at(self, rows: np.ndarray | slice) -> Rays:
        """The rays selected by a slice, indices or bool [R]."""
        return Rays(self.origins[rows], self.directions[rows], self.near[rows], self.far[rows])


@dataclass(frozen=True)
class PinholeCamera:
    """A pinhole camera and the size of its image."""

    intrinsics: np.ndarray  # [3, 3] float64; pixel (0, 0) is the centre of the first pixel
    c2w: np.ndarray  # [4, 4] float64, camera to working frame
    width: int
    height: int

    @property
    def center(self) -> np.ndarray:
        """The camera centre, [3]."""
        return self.c2w[:3, 3]

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels [P, 2] (x, y) and depths [P] of points [P, 3]; pixels are undefined behind the camera."""
        seen = (points - self.center) @ self.c2w[:3, :3] @ self.intrinsics.T
        depth = seen[:, 2]
        return seen[:, :2] / np.where(depth == 0, 1.0, depth)[:, None], depth

    def shows(self, pixels: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """Whether pixels [P, 2] in front of the camera are between the centres of the first and last ones: bool [P]."""
        x, y = pixels.T
        return (x >= 0) & (y >= 0) & (x <= self.width - 1) & (y <= self.height - 1) & (depth > 0)


@dataclass(frozen=True)
class ImageRays(Rays):
    """The rays of a whole image, row-major, and their camera."""

    camera: PinholeCamera

    def at(self, rows: np.ndarray | slice) -> Rays:
        """The selected rays; `self` if all are selected, plain `Rays` otherwise."""
        is_all = isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1)
        return self if is_all else super().at(rows)


@dataclass(frozen=True)
class PixelBatch:
    """Rays, and the colours and masks of the images at their pixels."""

    rays: Rays
    rgb: np.ndarray  # [R, 3] in [0, 1]
    mask: np.ndarray | None  # [R, 1] in [0, 1], None for a scene without masks
    view: np.ndarray  # [R] int32, index of the image

    def __len__(self) -> int:
        """The number of rays R."""
        return len(self.rays)

    def part(self, start: int, stop: int) -> PixelBatch:
        """The pixels `start` to `stop` - 1."""
        rows = slice(start, stop)
        mask = None if self.mask is None else self.mask[rows]
        return PixelBatch(self.rays.at(rows), self.rgb[rows], mask, self.view[rows])

    def words(self) -> dict[str, np.ndarray]:
        """The arrays by their descriptions, for messages."""
        view = f"of photograph {self.view[0]}"
        named = {
            f"the rays {view} (its camera)": np.hstack(list(vars(self.rays).values())),
            f"the colours {view}": self.rgb,
        }
        return named if self.mask is None else named | {f"the mask {view}": self.mask}
