"""The input of training: images, masks and cameras in the working frame.

V views, each with its own size H x W. The working frame is the unit-sphere frame: the region of interest is the unit
sphere at the origin. `scene_to_world` maps it to the world frame of the cameras.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.cameras import camera_rays, image_pixels
from data.parsed_scene import SparsePoints, WorldFrame
from data.pixels import Levels, sample_bilinear, size_of, to_float
from data.rays import PinholeCamera, Rays
from data.scenes.frustum import Cameras

LEAST_OUTWARD = 0.25  # of the cameras within a place look away from its centre


@dataclass(frozen=True, eq=False, kw_only=True)
class Posed:
    """The cameras of V views and the region of interest: `Views`, or a `Scene` with its photographs."""

    name: str
    image_names: tuple[str, ...]  # V file names
    intrinsics: np.ndarray  # [V, 3, 3] float64
    c2w: np.ndarray  # [V, 4, 4] float64, camera to working frame
    scene_to_world: np.ndarray  # [4, 4] float64, working frame to world: a similarity
    bbox_min: np.ndarray  # [3] float64, working frame: the region a mesh is extracted from
    bbox_max: np.ndarray  # [3] float64
    points: SparsePoints | None = None  # SfM points, working frame
    frame: WorldFrame | None = None  # what is known of the world frame

    @property
    def n_views(self) -> int:
        """The number of views V."""
        return len(self.image_names)

    @property
    def photographs(self) -> tuple[str, ...]:
        """The V names that the user knows: of the photographs, if `--mode prepare` recorded them, else of the files."""
        known = {} if self.frame is None else self.frame.photographs
        return tuple(known.get(name, name) for name in self.image_names)

    def size(self, view: int) -> tuple[int, int]:
        """(width, height) of a view, in pixels."""
        raise NotImplementedError

    @property
    def cameras(self) -> Cameras:
        """The cameras of the views, in the working frame."""
        sizes = np.array([self.size(view) for view in range(self.n_views)], np.float64)
        return Cameras(self.intrinsics, self.c2w, sizes)

    @property
    def pinholes(self) -> list[PinholeCamera]:
        """The same, one by one."""
        return [PinholeCamera(self.intrinsics[view], self.c2w[view], *self.size(view)) for view in range(self.n_views)]

    def rays(self, view: int, resolution_level: float = 1) -> tuple[Rays, tuple[int, int]]:
        """The rays of a whole view, row-major, and its (h, w) at `resolution_level` (see `image_pixels`)."""
        pixels = image_pixels(*self.size(view), resolution_level)
        return camera_rays(pixels, self.intrinsics[view], self.c2w[view]), (len(pixels), pixels.shape[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Views(Posed):
    """What is known of a scene without decoding its photographs."""

    sizes: tuple[tuple[int, int], ...]  # V of (width, height)

    def size(self, view: int) -> tuple[int, int]:
        """(width, height) of a view, in pixels."""
        return self.sizes[view]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scene(Posed):
    """Posed images. They stay unsigned integers in memory and are converted to floats per batch or view."""

    images: tuple[np.ndarray, ...]  # V of [H, W, 3] uint8 or uint16, RGB
    masks: tuple[np.ndarray, ...] | None  # V of [H, W] uint8, 255 on the object; None for a scene without masks
    spare_cameras: int = 0  # cameras without an image, in formats that pair them by order
    notes: tuple[str, ...] = ()  # for the log: the source of the region of interest, images left out
    doubts: tuple[str, ...] = ()  # those of the notes that are warnings: images or masks look wrong
    backdrop: np.ndarray | None = None  # [3] in [0, 1], the colour that the masks were derived from
    levels: Levels | None = None  # those of the files that were stretched to all levels of `images`

    def size(self, view: int) -> tuple[int, int]:
        """(width, height) of a view, in pixels."""
        height, width = self.images[view].shape[:2]
        return width, height

    def rgb_image(self, view: int, resolution_level: float = 1) -> np.ndarray:
        """The image as float32 [h, w, 3] in [0, 1], at the pixels of `rays(view, resolution_level)`.

        Bilinear as in the published image_at, but on the grid of the rays: `cv2.resize`, which the published code
        uses, has another grid, which shifts image and rendering against each other at every level but 1.
        """
        return self._sampled(self.images[view], resolution_level)

    def mask_image(self, view: int, resolution_level: float = 1) -> np.ndarray | None:
        """The mask as float32 [h, w] in [0, 1] on the grid of `rgb_image`; None for a scene without masks."""
        return None if self.masks is None else self._sampled(self.masks[view], resolution_level)

    def _sampled(self, image: np.ndarray, resolution_level: float) -> np.ndarray:
        if resolution_level == 1:
            return to_float(image)
        return sample_bilinear(image, image_pixels(*size_of(image), resolution_level))


def shares_within(scene: Scene, radius: float) -> tuple[float, float]:
    """The share of the cameras nearer to the centre than `radius`, and of these, the share that look away from it."""
    centres, forward = scene.c2w[:, :3, 3], scene.c2w[:, :3, 2]
    is_within = np.linalg.norm(centres, axis=1) < radius
    is_outward = (centres * forward).sum(axis=1) > 0
    return float(is_within.mean()), float((is_within & is_outward).sum() / max(1, is_within.sum()))


def radius_of(scene: Posed) -> float:
    """The radius of the unit sphere in world units."""
    return float(np.cbrt(np.linalg.det(scene.scene_to_world[:3, :3])))


def is_metric(scene: Posed) -> bool:
    """Whether the world unit is known to be a metre."""
    return scene.frame is not None and scene.frame.is_metric
