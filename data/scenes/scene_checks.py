"""What a scene must be to be trained on, and its description in the log."""

from __future__ import annotations

import numpy as np

from data.cameras import LARGEST_NUMBER
from data.errors import SceneError
from data.limits import FARTHEST_CAMERA
from data.parsed_scene import MASK_HALF
from data.scenes.region import OUTSIDE_RADII, region_words
from data.scenes.scene import LEAST_OUTWARD, Posed, Scene, is_metric, radius_of, shares_within

FARTHEST_REGION = 1e10  # radii from the world's origin: farther out float64 does not resolve the region
MIDDLE = 0.3  # radii: a camera nearer to the centre of the region is inside the object
# A place, such as a street or a room, is photographed from within, so that no object is in its centre: some cameras are
# inside the sphere, and some of these (LEAST_OUTWARD) look away from its centre.
LEAST_WITHIN = 0.25


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
        largest = " ".join(region_words(centre, radius * distances[nearest] / OUTSIDE_RADII))
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


def require_view(scene: Posed, view: int) -> None:
    """Raises SceneError if `view` is out of range."""
    if not 0 <= view < scene.n_views:
        raise SceneError(
            f"there is no training photograph {view}: the scene {scene.name} has 0 to {scene.n_views - 1}; choose one "
            "of them for --image, --path or interpolate_I_J"
        )


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
