"""What training knows of the world: photographs, masks, cameras, and the frame they are worked in.

V views, each of its own H x W pixels. The working frame is the unit sphere frame: the region of interest is the unit
sphere at the origin. `scene_to_world` leads from it to the frame the cameras were given in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.cameras import LARGEST_NUMBER, camera_rays, image_pixels
from data.errors import SceneError
from data.io.images import sample_bilinear, to_float
from data.parsed_scene import MASK_HALF, SparsePoints
from data.rays import Rays
from data.roi.region import OUTSIDE

# In working-frame units. Rays are float32, whose step at this distance is 0.008 of the unit sphere's radius: a camera
# farther off sees nothing of it, and was put there by a wrong matrix.
FARTHEST_CAMERA = 1e5

FARTHEST_REGION = 1e10  # radii from the origin of the world: float64 tells places in the region apart up to there

# In radii: a camera nearer to the middle of the region stands in what it photographs.
MIDDLE = 0.3


@dataclass(frozen=True, eq=False)
class Scene:
    """Posed photographs. Images stay as compact as their files: they become floats batch by batch, view by view."""

    name: str
    image_names: tuple[str, ...]  # V file names
    images: tuple[np.ndarray, ...]  # V of [H, W, 3] uint8 or uint16, RGB
    masks: tuple[np.ndarray, ...] | None  # V of [H, W] uint8, 255 on the object; None for a scene without masks
    intrinsics: np.ndarray  # [V, 3, 3] float64
    c2w: np.ndarray  # [V, 4, 4] float64, camera to working frame
    scene_to_world: np.ndarray  # [4, 4] float64, working frame to world: a similarity
    bbox_min: np.ndarray  # [3] float64, working frame: the region a mesh is extracted from
    bbox_max: np.ndarray  # [3] float64
    points: SparsePoints | None = None  # of structure from motion, working frame
    spare_cameras: int = 0  # the capture's cameras without a photograph, where these are paired by order alone
    notes: tuple[str, ...] = ()  # for the log: how the region of interest was found, photographs left out

    def __post_init__(self) -> None:
        """Raises ValueError where the shapes or types do not belong together."""
        views = len(self.images)
        expected = {
            "intrinsics": (views, 3, 3),
            "c2w": (views, 4, 4),
            "scene_to_world": (4, 4),
            "bbox_min": (3,),
            "bbox_max": (3,),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"Scene.{name} has shape {getattr(self, name).shape}, expected {shape}")
        for name, count in (("image_names", len(self.image_names)), ("masks", len(self.masks or self.images))):
            if count != views:
                raise ValueError(f"Scene.{name} has {count} entries, expected {views}")
        for view, image in enumerate(self.images):
            if image.dtype not in (np.uint8, np.uint16) or image.ndim != 3 or image.shape[2] != 3:
                raise ValueError(f"Scene.images has {image.dtype} {image.shape}, expected uint8 or uint16 [H, W, 3]")
            if self.masks is not None and self.masks[view].shape != image.shape[:2]:
                raise ValueError(f"Scene.masks has {self.masks[view].shape}, expected {image.shape[:2]}")

    @property
    def n_views(self) -> int:
        """V."""
        return len(self.images)

    def size(self, view: int) -> tuple[int, int]:
        """(width, height) of a view, in pixels."""
        height, width = self.images[view].shape[:2]
        return width, height

    def rays(self, view: int, resolution_level: int = 1) -> tuple[Rays, tuple[int, int]]:
        """The rays of a whole view, row-major, and its (h, w) at `resolution_level` (see `image_pixels`)."""
        pixels = image_pixels(*self.size(view), resolution_level)
        return camera_rays(pixels, self.intrinsics[view], self.c2w[view]), pixels.shape[:2]

    def rgb_image(self, view: int, resolution_level: int = 1) -> np.ndarray:
        """The photograph as float32 [h, w, 3] in [0, 1], seen exactly where `rays(view, resolution_level)` go through.

        Bilinear as in the published image_at, but on the grid of the rays: `cv2.resize`, which that uses, spaces its
        samples differently, so that picture and rendering would be shifted against each other at every level but 1.
        """
        return self._seen(self.images[view], resolution_level)

    def mask_image(self, view: int, resolution_level: int = 1) -> np.ndarray | None:
        """The mask as float32 [h, w] in [0, 1] on the grid of `rgb_image`; None for a scene without masks."""
        return None if self.masks is None else self._seen(self.masks[view], resolution_level)

    def _seen(self, image: np.ndarray, resolution_level: int) -> np.ndarray:
        """A photograph or mask at `resolution_level`, in [0, 1]."""
        if resolution_level == 1:
            return to_float(image)
        return sample_bilinear(image, image_pixels(image.shape[1], image.shape[0], resolution_level))


def check_scene(scene: Scene, cameras_outside: bool = True) -> Scene:
    """`scene` itself, if it can be trained on.

    Raises SceneError for numbers that overflowed, for a camera inside the unit sphere (where cameras may be there: in
    the middle of it), or farther than FARTHEST_CAMERA from it, and for masks that are empty in every view (an empty one
    is a view that does not see the object).
    """
    _require_numbers(scene)
    distances = np.linalg.norm(scene.c2w[:, :3, 3], axis=1)
    nearest = int(np.argmin(distances))
    camera = f"{scene.name}: the camera of view {nearest} ({scene.image_names[nearest]})"
    if cameras_outside and distances[nearest] < 1:
        raise SceneError(
            f"{camera} lies inside the unit sphere, {distances[nearest]:.3g} from its centre; choose a region with "
            f"--roi that holds the object and leaves every camera outside{_such_as(scene, distances[nearest])}, or "
            "train with confs/fast.conf, whose rays start at the camera"
        )
    if distances[nearest] < MIDDLE:
        raise SceneError(
            f"{camera} lies in the middle of the region of interest, {distances[nearest]:.3g} of its radius from its "
            "centre, where the object is to be; correct its pose, leave that view out, or choose another --roi"
        )
    farthest = int(np.argmax(distances))
    if distances[farthest] > FARTHEST_CAMERA:
        raise SceneError(
            f"{scene.name}: the camera of view {farthest} ({scene.image_names[farthest]}) is {distances[farthest]:.3g} "
            f"radii from the unit sphere, beyond {FARTHEST_CAMERA:g}; correct its pose, or the region of interest"
        )
    if scene.masks is not None and (largest := max(mask.max() for mask in scene.masks)) <= MASK_HALF:
        raise SceneError(
            f"{scene.name}: all masks are empty (the largest value is {largest} of 255); "
            "store 0 off the object and 255 on it, or remove the masks and train with train.mask_weight = 0"
        )
    return scene


def _require_numbers(scene: Scene) -> None:
    """Raises SceneError for numbers that overflowed, or that float32, in which is computed, does not hold."""
    for name in ("intrinsics", "c2w", "scene_to_world", "bbox_min", "bbox_max"):
        if not (np.abs(getattr(scene, name)) < LARGEST_NUMBER).all():
            raise SceneError(
                f"{scene.name}: the matrices of its camera file hold numbers so large or small that {name} is not "
                f"finite or beyond {LARGEST_NUMBER:g}; correct them"
            )
    radius, distance = radius_of(scene), float(np.linalg.norm(scene.scene_to_world[:3, 3]))
    if not radius > 1 / LARGEST_NUMBER or distance > FARTHEST_REGION * radius:
        raise SceneError(
            f"{scene.name}: its region of interest has the radius {radius:.3g} and lies {distance:.3g} from the origin "
            "of its cameras' world, where numbers tell no places apart; move or scale the poses"
        )
    if scene.points is not None and not (np.abs(scene.points.xyz) < LARGEST_NUMBER).all():
        raise SceneError(
            f"{scene.name}: its points of structure from motion reach beyond {LARGEST_NUMBER:g} radii; remove those "
            "that do, or all of them"
        )


def _such_as(scene: Scene, nearest: float) -> str:
    """The largest region about the same middle that leaves cameras outside, the nearest at a distance in radii."""
    if nearest < MIDDLE:
        return ""
    centre, radius = scene.scene_to_world[:3, 3], radius_of(scene) * nearest / OUTSIDE
    return f' (--roi "{" ".join(f"{value:.4g}" for value in (*centre, radius))}" does)'


def radius_of(scene: Scene) -> float:
    """The length of one radius of the working frame in the world."""
    return float(np.cbrt(np.linalg.det(scene.scene_to_world[:3, :3])))


def require_view(scene: Scene, view: int) -> None:
    """Raises SceneError for a photograph the scene does not have."""
    if not 0 <= view < scene.n_views:
        raise SceneError(f"there is no photograph {view}: the scene {scene.name} has 0 to {scene.n_views - 1}")


def facts(scene: Scene) -> dict[str, str]:
    """Counts, sizes, what there is, how far the cameras are; by words that the report translates."""
    distances = np.linalg.norm(scene.c2w[:, :3, 3], axis=1)
    return {
        "views": str(scene.n_views),
        "size in pixels": _sizes(scene),
        "bits per channel": str(scene.images[0].itemsize * 8),
        "pixels inside the masks": "no masks" if scene.masks is None else f"{_masked_share(scene.masks):.0%}",
        "cameras from the centre of the unit sphere": f"{distances.min():.2f} to {distances.max():.2f}",
        "1 unit in the world": f"{radius_of(scene):.4g}",
    }


def summary(scene: Scene) -> str:
    """One line of these for the start of a log."""
    views, sizes, bits, masked, distances, unit = facts(scene).values()
    parts = [
        f"scene {scene.name}: {views} views of {sizes}",
        f"{bits} bits per channel",
        masked if scene.masks is None else f"masks over {masked} of the pixels",
        f"cameras {distances} from the centre of the unit sphere",
        f"1 unit = {unit} in the world",
    ]
    return ", ".join(parts)


def _sizes(scene: Scene) -> str:
    """`640x480`, or the smallest and the largest where they differ."""
    sizes = sorted({scene.size(view) for view in range(scene.n_views)}, key=np.prod)
    ends = [f"{width}x{height}" for width, height in (sizes[0], sizes[-1])]
    return ends[0] if len(sizes) == 1 else " to ".join(ends)


def _masked_share(masks: tuple[np.ndarray, ...]) -> float:
    """The part of all pixels that lies in the masks."""
    return sum(np.count_nonzero(mask > MASK_HALF) for mask in masks) / sum(mask.size for mask in masks)
