"""The input of training: images, masks and cameras in the working frame.

V views, each with its own size H x W. The working frame is the unit-sphere frame: the region of interest is the unit
sphere at the origin. `scene_to_world` maps it to the world frame of the cameras.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.cameras import LARGEST_NUMBER, camera_rays, image_pixels
from data.errors import SceneError
from data.io.colors import Levels
from data.io.images import sample_bilinear, size_of, to_float
from data.limits import FARTHEST_CAMERA
from data.parsed_scene import MASK_HALF, SparsePoints, WorldFrame
from data.rays import PinholeCamera, Rays
from data.scenes.frustum import Cameras
from data.scenes.region import OUTSIDE, region_words

FARTHEST_REGION = 1e10  # radii from the world's origin: farther out float64 does not resolve the region

# Radii: a camera nearer to the centre of the region is inside the object.
MIDDLE = 0.3
# A place, such as a street or a room, is photographed from within, so that no object is in its centre: some cameras are
# inside the sphere, and some of these look away from its centre.
LEAST_WITHIN, LEAST_OUTWARD = 0.25, 0.25


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


def check_scene(scene: Scene, cameras_outside: bool = True) -> Scene:
    """`scene` itself, if it can be trained on.

    Raises SceneError for numbers that overflowed, for a camera inside the unit sphere (without `cameras_outside`: near
    its centre, unless it is a place), for a camera farther than FARTHEST_CAMERA, and for masks that are all
    empty. A single empty mask is valid: that view does not show the object.
    """
    for name in ("intrinsics", "c2w", "scene_to_world", "bbox_min", "bbox_max"):
        if not (np.abs(getattr(scene, name)) < LARGEST_NUMBER).all():
            raise SceneError(
                f"{scene.name}: the matrices of its camera file contain numbers so large or small that {name} is not "
                f"finite or exceeds {LARGEST_NUMBER:g}; correct them"
            )
    centre, radius = scene.scene_to_world[:3, 3], radius_of(scene)
    distance = float(np.linalg.norm(centre))
    if not radius > 1 / LARGEST_NUMBER or distance > FARTHEST_REGION * radius:
        raise SceneError(
            f"{scene.name}: its region of interest has the radius {radius:.3g} and is {distance:.3g} from the origin "
            "of the world frame, too far for the precision of float64; move or scale the poses"
        )
    if scene.points is not None and not (np.abs(scene.points.xyz) < LARGEST_NUMBER).all():
        raise SceneError(f"{scene.name}: some of its SfM points are beyond {LARGEST_NUMBER:g} radii; remove them")
    distances = np.linalg.norm(scene.c2w[:, :3, 3], axis=1)
    nearest, farthest = int(np.argmin(distances)), int(np.argmax(distances))
    camera = f"{scene.name}: the camera of view {nearest} ({scene.photographs[nearest]})"
    if cameras_outside and distances[nearest] < 1:
        largest = " ".join(region_words(centre, radius * distances[nearest] / OUTSIDE))
        example = f' (such as --roi "{largest}")' if distances[nearest] >= MIDDLE else ""
        raise SceneError(
            f"{camera} is inside the unit sphere, {distances[nearest]:.3g} from its centre; choose a region with "
            f"--roi that contains the object and no camera{example}, or use confs/fast.conf, whose rays start at the "
            "camera"
        )
    within, outward = shares_within(scene, 1.0)
    is_place = within >= LEAST_WITHIN and outward >= LEAST_OUTWARD
    if distances[nearest] < MIDDLE and not is_place:
        raise SceneError(
            f"{camera} is {distances[nearest]:.3g} radii from the centre of the region of interest, where the object "
            "should be; correct its pose, leave that view out, or choose another --roi"
        )
    if distances[farthest] > FARTHEST_CAMERA:
        raise SceneError(
            f"{scene.name}: the camera of view {farthest} ({scene.photographs[farthest]}) is {distances[farthest]:.3g} "
            f"radii from the unit sphere, beyond {FARTHEST_CAMERA:g}; correct its pose, or the region of interest"
        )
    if scene.masks is not None and (brightest := max(mask.max() for mask in scene.masks)) <= MASK_HALF:
        raise SceneError(
            f"{scene.name}: all masks are empty (the largest value is {brightest} of 255); "
            "store 0 off the object and 255 on it, or remove the masks and train with train.mask_weight = 0"
        )
    return scene


def shares_within(scene: Scene, radius: float) -> tuple[float, float]:
    """The share of the cameras nearer to the centre than `radius`, and of these, the share that look away from it."""
    centres, forward = scene.c2w[:, :3, 3], scene.c2w[:, :3, 2]
    is_within = np.linalg.norm(centres, axis=1) < radius
    is_outward = (centres * forward).sum(axis=1) > 0
    return float(is_within.mean()), float((is_within & is_outward).sum() / max(1, is_within.sum()))


def radius_of(scene: Posed) -> float:
    """The radius of the unit sphere in world units."""
    return float(np.cbrt(np.linalg.det(scene.scene_to_world[:3, :3])))


def require_view(scene: Posed, view: int) -> None:
    """Raises SceneError if `view` is out of range."""
    if not 0 <= view < scene.n_views:
        raise SceneError(
            f"there is no training photograph {view}: the scene {scene.name} has 0 to {scene.n_views - 1}; choose one "
            "of them for --image, --path or interpolate_I_J"
        )


def is_metric(scene: Posed) -> bool:
    """Whether the world unit is known to be a metre."""
    return scene.frame is not None and scene.frame.is_metric


def facts(scene: Scene) -> dict[str, str]:
    """Counts, sizes, masks and camera distances; the keys are texts that the report translates."""
    distances = np.linalg.norm(scene.c2w[:, :3, 3], axis=1)
    sizes = sorted({scene.size(view) for view in range(scene.n_views)}, key=np.prod)
    ends = [f"{width}x{height}" for width, height in (sizes[0], sizes[-1])]  # the smallest and the largest
    masked = "no masks"
    if scene.masks is not None:
        on_object = sum(np.count_nonzero(mask > MASK_HALF) for mask in scene.masks)
        masked = f"{on_object / sum(mask.size for mask in scene.masks):.0%}"
    return {
        "views": str(scene.n_views),
        "size in pixels": ends[0] if len(sizes) == 1 else " to ".join(ends),
        "bits per channel": str(scene.images[0].itemsize * 8),
        "mask coverage": masked,
        "camera distances from the centre, radii": f"{distances.min():.2f} to {distances.max():.2f}",
        "metres per radius" if is_metric(scene) else "world units per radius": f"{radius_of(scene):.4g}",
    }


def summary(scene: Scene) -> str:
    """The `facts` as one line for the log."""
    views, sizes, bits, masked, distances, unit = facts(scene).values()
    parts = [
        f"scene {scene.name}: {views} views of {sizes}",
        f"{bits} bits per channel",
        masked if scene.masks is None else f"masks cover {masked} of the pixels",
        f"camera distances {distances} radii",
        f"1 radius = {unit} {'m' if is_metric(scene) else 'world units'}",
    ]
    return ", ".join(parts)
