"""What a reader finds in a folder: photographs that are not decoded yet, each with its lens and its pose.

The one value that every on-disk format becomes; `data.scenes.preprocess` makes a `Scene` of it. The world frame is the
format's own. Cameras look along +z, x right, y down (OpenCV); pixel (0, 0) is the centre of the first pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

# A mask means "object" where it exceeds one half of 255, as in the published training loop (exp_runner.py, mask > 0.5).
MASK_HALF = 127
# Of the points of structure from motion one in so many stays out of every training: a thousand points leave more than
# a hundred witnesses, enough for quantiles, and the training loses little.
HELD_OUT_EVERY = 8


@dataclass(frozen=True, eq=False)
class Lens:
    """How a photograph was projected: a pinhole, with or without distortion."""

    intrinsics: np.ndarray  # [3, 3] float64, camera coordinates to homogeneous pixels
    distortion: tuple[float, ...] = ()  # OpenCV's order: k1 k2 p1 p2 [k3 [k4 k5 k6]], or fisheye's k1 k2 k3 k4; () none
    is_fisheye: bool = False
    size: tuple[int, int] | None = None  # (width, height) the intrinsics are for; None where the format does not say


@dataclass(frozen=True, eq=False)
class PosedImage:
    """One posed photograph on disk."""

    path: Path
    lens: Lens
    c2w: np.ndarray  # [4, 4] float64, camera to world
    mask_path: Path | None = None
    is_held_out: bool = False  # the format itself keeps it for testing
    size: tuple[int, int] | None = None  # (width, height) of the file; None where its reader did not look


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """Points that structure from motion triangulated; N points."""

    xyz: np.ndarray  # [N, 3] float64, world
    n_views: np.ndarray  # [N] int, photographs that see the point
    error: np.ndarray  # [N] float64, mean reprojection error in pixels; NaN where unknown
    rgb: np.ndarray  # [N, 3] uint8

    def at(self, rows: np.ndarray | slice) -> SparsePoints:
        """Some of them: indices, bool [N], or a slice."""
        return SparsePoints(self.xyz[rows], self.n_views[rows], self.error[rows], self.rgb[rows])


def training_points(points: SparsePoints) -> SparsePoints:
    """Those that a training may use: all but every WITNESS_EVERY-th, by their order in the scene's file."""
    return points.at(np.arange(len(points.xyz)) % HELD_OUT_EVERY != 0)


@dataclass(frozen=True, eq=False)
class ParsedScene:
    """A posed set of photographs in its own world frame."""

    name: str
    source: Path  # the file or folder that gave the cameras, named in messages
    images: tuple[PosedImage, ...]
    points: SparsePoints | None = None
    scale_mat: np.ndarray | None = None  # [4, 4], unit sphere to world: the region of interest, where the format has it
    region_mat: np.ndarray | None = None  # [4, 4], its cube of +-1.01 bounds the mesh; None: that of scale_mat
    spare_cameras: int = 0  # cameras beyond the photographs, where these are paired by their order alone
    notes: tuple[str, ...] = ()  # for the log: photographs left out, keys ignored
