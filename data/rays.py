"""What the data room hands on: rays and the pixels they were cast through.

R is the number of rays; all arrays are float32 in the working (unit sphere) frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rays:
    """Half-lines `origins + t * directions`, sampled for t in [near, far]."""

    origins: np.ndarray  # [R, 3]
    directions: np.ndarray  # [R, 3], unit length
    near: np.ndarray  # [R, 1]
    far: np.ndarray  # [R, 1]

    def __post_init__(self) -> None:
        """Raises ValueError where the shapes do not belong together."""
        count = len(self.origins)
        expected = {"origins": (count, 3), "directions": (count, 3), "near": (count, 1), "far": (count, 1)}
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"Rays.{name} has shape {getattr(self, name).shape}, expected {shape}")

    def __len__(self) -> int:
        """R."""
        return len(self.origins)

    def slice(self, start: int, stop: int) -> Rays:
        """The rays start..stop-1."""
        return self.at(slice(start, stop))

    def at(self, rows: np.ndarray | slice) -> Rays:
        """The rays of some rows: a slice, numbers, or a bool for each."""
        return Rays(self.origins[rows], self.directions[rows], self.near[rows], self.far[rows])


@dataclass(frozen=True)
class PixelBatch:
    """Rays and what the photographs show there."""

    rays: Rays
    rgb: np.ndarray  # [R, 3] in [0, 1]
    mask: np.ndarray | None  # [R, 1] in [0, 1], None for a scene without masks
    view: np.ndarray  # [R] int32, index of the photograph
