"""The output of a reader: images that are not decoded yet, each with its lens and its pose.

Every on-disk format is read into a `ParsedScene`, from which `data.scenes.preprocess` makes a `Scene`. The world frame
is that of the format. Cameras look along +z, x right, y down (OpenCV); pixel (0, 0) is the centre of the first pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from data.cameras import affine
from data.errors import listed

# A mask marks the object where it exceeds half of 255, as in the published training loop (exp_runner.py, mask > 0.5).
MASK_HALF = 127
# Every eighth SfM point is held out of training for evaluation: a thousand points leave more than a hundred, enough for
# quantiles, and the training loses little.
HELD_OUT_EVERY = 8


@dataclass(frozen=True, match_args=False)  # frozen: its members may be read-only
class CameraFiles(Protocol):
    """What a reader takes from the `dataset` block: only the NeuS format has file names that a conf chooses."""

    render_cameras_name: str
    object_cameras_name: str


@dataclass(frozen=True, eq=False)
class Lens:
    """The projection of an image: a pinhole with optional distortion."""

    intrinsics: np.ndarray  # [3, 3] float64, camera coordinates to homogeneous pixels
    distortion: tuple[float, ...] = ()  # OpenCV's order: k1 k2 p1 p2 [k3 [k4 k5 k6]], or fisheye's k1 k2 k3 k4; () none
    is_fisheye: bool = False
    size: tuple[int, int] | None = None  # (width, height) the intrinsics refer to; None if the format does not say
    colmap_model: str = ""  # COLMAP's camera model that OpenCV's cannot express; distortion has its other parameters

    @property
    def key(self) -> tuple:
        """All of its numbers, hashable."""
        return self.intrinsics.tobytes(), self.distortion, self.is_fisheye, self.size, self.colmap_model


@dataclass(frozen=True, eq=False)
class PosedImage:
    """An image file with its camera."""

    path: Path
    lens: Lens
    c2w: np.ndarray  # [4, 4] float64, camera to world
    mask_path: Path | None = None
    is_held_out: bool = False  # the format marks it as a test image
    size: tuple[int, int] | None = None  # (width, height) of the file; None if the reader did not open it


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """N points triangulated by structure from motion (SfM)."""

    xyz: np.ndarray  # [N, 3] float64, world
    n_views: np.ndarray  # [N] int, images that see the point
    error: np.ndarray  # [N] float64, mean reprojection error in pixels; NaN where unknown
    rgb: np.ndarray  # [N, 3] uint8
    are_derived: bool = False  # triangulated from the photographs by this program

    def at(self, rows: np.ndarray | slice) -> SparsePoints:
        """The points selected by indices, bool [N] or a slice."""
        return SparsePoints(self.xyz[rows], self.n_views[rows], self.error[rows], self.rgb[rows])


def training_points(points: SparsePoints) -> SparsePoints:
    """The points that training may use: all but points 0, HELD_OUT_EVERY, ... in the order of the scene's file."""
    return points.at(np.arange(len(points.xyz)) % HELD_OUT_EVERY != 0)


@dataclass(frozen=True)
class Reference:
    """The map grid of a world frame: grid = offset + scale * rotation @ world, in metres: east, north, height."""

    crs: str  # of the grid, such as EPSG:32632
    zone: str  # of UTM
    offset: tuple[float, ...]  # [3]
    rotation: tuple[tuple[float, ...], ...]  # [3, 3]
    scale: float
    accuracy: tuple[float, float]  # root mean square of horizontal and vertical residuals of the photographs, metres
    photographs: int  # that the grid comes from
    left_out: tuple[str, ...] = ()  # photographs whose positions do not fit

    @property
    def without_offset(self) -> np.ndarray:
        """[4, 4] from the world frame to the grid minus its offset, of the size that single precision can hold."""
        return affine(self.scale * np.array(self.rotation))


@dataclass(frozen=True)
class WorldFrame:
    """A world frame with the z axis up, and the photographs of the scene, as `--mode prepare` records them."""

    up_source: str  # how the direction was found, in words
    scale_source: str = ""  # how metres were found, in words; "": the unit is not known
    scale_error: float | None = None  # relative standard error of the unit; None: not known
    camera_errors: Mapping[str, float] = field(default_factory=dict)  # mean reprojection error in pixels, by photograph
    photographs: Mapping[str, str] = field(default_factory=dict)  # image of the scene -> photograph it was made from
    without_camera: tuple[str, ...] = ()  # photographs that were given and have no camera
    notes: tuple[str, ...] = ()  # sentences on how the photographs were read, and what is wrong with them
    reference: Reference | None = None  # from GPS, in its own file
    doubt: str = ""  # why the cameras may be wrong, a sentence; "": nothing says so
    limit: str = ""  # what limits the accuracy of the cameras, a sentence; "": nothing is known to

    @property
    def is_metric(self) -> bool:
        """Whether the unit is a metre."""
        return bool(self.scale_source)

    @property
    def left_out(self) -> str:
        """The photographs without a camera, in words; "" if all have one."""
        if not self.without_camera:
            return ""
        total = len({*self.photographs.values(), *self.without_camera})
        return f"{len(self.without_camera)} of {total} photographs have no camera: {listed(self.without_camera)}"


@dataclass(frozen=True, eq=False)
class ParsedScene:
    """A set of posed images in the world frame of its format."""

    name: str
    source: Path  # the file or folder that holds the cameras, named in messages
    images: tuple[PosedImage, ...]
    points: SparsePoints | None = None
    scale_mat: np.ndarray | None = None  # [4, 4], unit sphere to world: the region of interest, if the format has one
    region_mat: np.ndarray | None = None  # [4, 4]; the image of the cube +-1.01 bounds the mesh; None: scale_mat
    spare_cameras: int = 0  # cameras without an image, in formats that pair them by order
    notes: tuple[str, ...] = ()  # for the log: images left out, keys ignored
    frame: WorldFrame | None = None  # None: neither up nor the unit is known


def transformed(parsed: ParsedScene, change: np.ndarray, frame: WorldFrame) -> ParsedScene:
    """The scene in another world frame; `change` [4, 4] maps old to new coordinates, a similarity."""
    scale = np.cbrt(np.linalg.det(change[:3, :3]))
    images = []
    for image in parsed.images:
        pose = change @ image.c2w
        pose[:3, :3] /= scale  # a rotation again
        images.append(replace(image, c2w=pose))
    points = parsed.points and replace(parsed.points, xyz=parsed.points.xyz @ change[:3, :3].T + change[:3, 3])
    scale_mat, region_mat = (None if mat is None else change @ mat for mat in (parsed.scale_mat, parsed.region_mat))
    return replace(parsed, images=tuple(images), points=points, scale_mat=scale_mat, region_mat=region_mat, frame=frame)
