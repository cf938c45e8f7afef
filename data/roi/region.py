"""The region of interest: the sphere that holds what is to be reconstructed.

Where the format does not give it, it is found from what supports it best: masks, the points of structure from motion,
or the cameras alone. Everything is in the world frame of the cameras and moves with it under any similarity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.cameras import evenly_spaced
from data.errors import SceneError, UserError, listed_views
from data.parsed_scene import SparsePoints
from data.roi.frustum import Cameras, border_distances, enclosing_ball, frustum_distances, meeting_point
from data.roi.sparse import object_points
from data.roi.visual_hull import Hull, masked_views, visual_hull

MARGIN = 1.1  # sphere over object, the published dataset.scale_mat_scale
POINTS_MARGIN = 1.2  # likewise around points, whose outermost were trimmed: tips that few points are on
OUTSIDE = 1.02  # least distance of a camera in radii: a camera on the sphere would start its rays inside the surface
LEAST_SHRUNK = 0.5  # of the radius wanted: a smaller sphere no longer holds what was found
LEAST_HULL_SHRUNK = 0.8  # of a hull's: one that reaches the cameras is open towards them, and says little
LEAST_RADIUS = 1e-3  # of the median camera distance: a smaller thing is a pixel or two in the images
FOCUS_SHARE = 0.6  # of the median camera distance: the largest sphere about a focus, where images show much more
WITHIN_SHARE = 0.9  # of that distance, where cameras may stand within: most of them stay outside

# Distances along the axes, in extents of the cameras, at which something in common is looked for.
SEARCHED_DEPTHS = np.geomspace(0.02, 50.0, 40)
SEARCHED_VIEWS = 64
LARGEST_POWER = 9  # of ten: the focal length in pixels of no camera is larger, or smaller than one over it
LARGEST_ROI = 1e12  # world units, and one over the smallest radius: squares and cubes stay far from overflowing
SAME_RATIO = 1.25  # of principal point to middle, in x and y alike, where images were resized
OFF_CENTRE = 0.25  # of the image, from its middle to the principal point: beyond it another size was meant, or a crop
HINT = 'give the region as --roi "x y z r"'


@dataclass(frozen=True, eq=False)
class Region:
    """A sphere in the world, and in one sentence how it was found."""

    centre: np.ndarray  # [3] float64
    radius: float
    how: str  # while it may still reach a camera: what it was found from

    @property
    def scale_mat(self) -> np.ndarray:
        """[4, 4], unit sphere to world."""
        matrix = np.diag([self.radius, self.radius, self.radius, 1.0])
        matrix[:3, 3] = self.centre
        return matrix


def parse_roi(text: str) -> Region:
    """The region of `--roi "x y z r"`: centre and radius in world units, apart by spaces or commas; else UserError."""
    try:
        numbers = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if not text.isascii() or "_" in text:  # Python's float takes other digits and underscores
        numbers = []
    usable = all(math.isfinite(number) and abs(number) <= LARGEST_ROI for number in numbers)
    if len(numbers) != 4 or not usable or numbers[3] < 1 / LARGEST_ROI:
        raise UserError(
            f'--roi "{text}": give the centre and the radius > 0 in world units, four numbers up to '
            f'{LARGEST_ROI:g}, such as --roi "0 0 0 1"'
        )
    return _region(np.array(numbers[:3]), numbers[3], "as given by --roi")


def find_region(
    intrinsics: np.ndarray,
    c2w: np.ndarray,
    sizes: np.ndarray,
    masks: Sequence[np.ndarray] | None,
    points: SparsePoints | None,
    cameras_outside: bool = True,
) -> Region:
    """The region of interest of V views: from masks, else from points, else from where the cameras look.

    Args:
        cameras_outside: the region leaves every camera outside, and is shrunk for it. Where it need not, it stays as
            it is found, so that it cuts off nothing that they look at, but leaves most cameras outside.
        intrinsics: [V, 3, 3]; c2w: [V, 4, 4] OpenCV camera to world; sizes: [V, 2] (width, height).
        masks: V times uint8 [H, W], 255 on the object. points: in the world frame.
    Raises:
        SceneError: the cameras have nothing in common, or nothing tells where along their axes it is.
    """
    cameras = _cameras(intrinsics, c2w, sizes)
    _require_usable(cameras)
    found = _from_masks(cameras, masks) if masks is not None else None
    if found is None and points is not None:
        found = _from_points(cameras, points, cameras_outside)
    if found is None:
        found = _from_focus(cameras, cameras_outside)
    return _outside_cameras(found, cameras) if cameras_outside else _with_cameras_within(found, cameras)


def require_common_view(region: Region, intrinsics: np.ndarray, c2w: np.ndarray, sizes: np.ndarray) -> None:
    """Raises SceneError where at least half of the views show nothing of the region: cameras that look away."""
    cameras = _cameras(intrinsics, c2w, sizes)
    sees = frustum_distances(region.centre[None], cameras)[:, 0] > -region.radius
    if 2 * sees.sum() <= len(cameras):
        _require_centred(cameras)
        raise SceneError(
            f"{len(cameras) - sees.sum()} of {len(cameras)} cameras look away from the region of interest "
            f"({listed_views(np.flatnonzero(~sees))}); correct their poses, or {HINT}"
        )


def _require_centred(cameras: Cameras) -> None:
    """Raises SceneError where principal points lie far off the middle of the images.

    Where they do so by one ratio to the right and downwards, the cameras are for images of another size.
    """
    principal = cameras.intrinsics[:, :2, 2]
    off = np.abs(principal - (cameras.sizes - 1) / 2).max(axis=1) / cameras.sizes.max(axis=1)
    if np.median(off) > OFF_CENTRE:
        (x, y), (width, height) = principal[np.argmax(off)], cameras.sizes[np.argmax(off)].astype(int)
        across, down = 2 * x / width, 2 * y / height
        if not 1 / SAME_RATIO < across / (down or 1.0) < SAME_RATIO:
            raise SceneError(
                f"the principal point of view {np.argmax(off)} is ({x:.4g}, {y:.4g}), far off the middle of its "
                f"image of {width}x{height} pixels; correct cx and cy, or give the photographs before they were cut"
            )
        raise SceneError(
            f"the cameras are for images of another size: the principal point of view {np.argmax(off)} is ({x:.4g}, "
            f"{y:.4g}) and its image {width}x{height} pixels; give the photographs that the cameras were made for, "
            "or scale the cameras with them"
        )


def _cameras(intrinsics: np.ndarray, c2w: np.ndarray, sizes: np.ndarray) -> Cameras:
    """The cameras in float64, with axes of unit length: some programs export poses with a scale."""
    cameras = Cameras(*(np.array(value, dtype=np.float64) for value in (intrinsics, c2w, sizes)))
    with np.errstate(divide="ignore", invalid="ignore"):
        cameras.c2w[:, :3, :3] /= np.linalg.norm(cameras.c2w[:, :3, :3], axis=1, keepdims=True)
    return cameras


def _require_usable(cameras: Cameras) -> None:
    """Raises SceneError for numbers with which geometry would overflow."""
    focals = cameras.intrinsics[:, (0, 1), (0, 1)]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        finite = np.isfinite(cameras.c2w).all() and np.isfinite(cameras.origins**4).all()
        usual = np.isfinite(cameras.intrinsics).all() and (np.abs(np.log10(focals)) < LARGEST_POWER).all()
    if not (finite and usual):
        raise SceneError(
            "the cameras hold numbers too large, too small or not finite, so that no region of interest is found among "
            f"them; correct them, or {HINT}"
        )


def _from_masks(cameras: Cameras, masks: Sequence[np.ndarray]) -> Region | None:
    """The ball about the visual hull; None where the masks do not bound one that leaves the cameras outside."""
    hull = visual_hull(masked_views(cameras, masks))
    if hull is None:
        return None
    centre, radius = enclosing_ball(hull.centres)
    radius += hull.side / 2
    if np.linalg.norm(cameras.origins - centre, axis=1).min() < LEAST_HULL_SHRUNK * OUTSIDE * MARGIN * radius:
        return None
    return _unless_a_point(Region(centre, MARGIN * radius, f"from the visual hull of {_asked(hull)}"), cameras)


def _asked(hull: Hull) -> str:
    """How many masks, and which of them were left out."""
    left_out = hull.views[~hull.is_trusted]
    count = f"{np.sum(hull.is_trusted)} masks"
    return count if not len(left_out) else f"{count} ({listed_views(left_out)} left out, which the others contradict)"


def _from_points(cameras: Cameras, points: SparsePoints, cameras_outside: bool) -> Region | None:
    """The ball about the points on what most cameras look at; None where there are too few.

    Where cameras may stand within, most are to stay outside nevertheless.
    """
    kept = object_points(cameras, points)
    if kept is None:
        return None
    centre, radius = enclosing_ball(kept)
    radius *= POINTS_MARGIN
    if not cameras_outside:
        radius = min(radius, WITHIN_SHARE * _distance(cameras, centre))
    source = f"from {len(kept)} of {len(points.xyz)} points of structure from motion"
    return _unless_a_point(Region(centre, radius, source), cameras)


def _unless_a_point(found: Region, cameras: Cameras) -> Region | None:
    """What was found, or None where it is so small that nothing was."""
    return found if found.radius > LEAST_RADIUS * _distance(cameras, found.centre) else None


def _distance(cameras: Cameras, centre: np.ndarray) -> float:
    """The median camera's."""
    return float(np.median(np.linalg.norm(cameras.origins - centre, axis=1)))


def _from_focus(cameras: Cameras, cameras_outside: bool) -> Region:
    """The ball about the point that most cameras look at, as large as the median image shows it.

    That is whole in a square image; in another one it is the geometric mean of the sizes at which width and height
    hold it, because a long image is of a long thing. Where cameras may stand within, it reaches the border
    of the median image that is farthest from the middle: what an image cuts off on one side is in others.

    Raises SceneError where they look at nothing in common, or along parallel axes.
    """
    _require_something_common(cameras)
    centre = meeting_point(cameras.origins, cameras.axes)
    if centre is None:
        raise SceneError(f"the cameras look along parallel axes, so that nothing tells how far the object is; {HINT}")
    borders = [border_distances(centre[None], *camera)[0] for camera in cameras]
    held = np.array(borders).reshape(-1, 2, 2).min(axis=2)  # [V, 2], by the width and by the height
    shown = held.min(axis=1)
    if 2 * np.sum(shown > 0) <= len(cameras):
        raise SceneError(
            f"the cameras look at no common point ({listed_views(np.flatnonzero(shown <= 0))} do not show the one "
            f"nearest to all axes); {HINT}"
        )
    distance = _distance(cameras, centre)
    if cameras_outside:
        radius = min(np.median(np.sqrt(held[shown > 0].prod(axis=1))), FOCUS_SHARE * distance)
    else:
        farthest = np.max(borders, axis=1)[shown > 0]
        radius = min(MARGIN * np.median(farthest), WITHIN_SHARE * distance)
    return Region(centre, radius, f"from the common focus of {len(cameras)} cameras")


def _require_something_common(cameras: Cameras) -> None:
    """Raises SceneError where every point of the cameras' axes is in at most half of the images."""
    apart = np.linalg.norm(cameras.origins - np.median(cameras.origins, axis=0), axis=1)
    extent = np.median(apart[apart > 0]) if apart.any() else 0.0
    if extent == 0:
        raise SceneError(f"all cameras are at one place, so that nothing tells how far the object is; {HINT}")
    chosen = evenly_spaced(len(cameras), SEARCHED_VIEWS)
    some = cameras.pick(chosen)
    along = extent * SEARCHED_DEPTHS[:, None]
    searched = (some.origins[:, None] + some.axes[:, None] * along).reshape(-1, 3)
    shows = frustum_distances(searched, cameras) > 0
    best = int(np.argmax(shows.sum(axis=0)))
    if 2 * shows[:, best].sum() <= len(cameras):
        raise SceneError(
            f"the cameras look away from each other: no point is in more than {shows[:, best].sum()} of "
            f"{len(cameras)} images ({listed_views(np.flatnonzero(~shows[:, best]))} look elsewhere); "
            f"leave out the views of other places or correct the poses, or {HINT}"
        )


def _outside_cameras(found: Region, cameras: Cameras) -> Region:
    """The region, shrunk where a camera would lie inside; SceneError where less than LEAST_SHRUNK of it were left."""
    distances = np.linalg.norm(cameras.origins - found.centre, axis=1)
    nearest = int(np.argmin(distances))
    radius = distances[nearest] / OUTSIDE
    if radius >= found.radius:
        return _region(found.centre, found.radius, found.how)
    if radius < LEAST_SHRUNK * found.radius:
        raise SceneError(
            f"the camera of view {nearest} is {distances[nearest]:.3g} from the middle of the region of interest, "
            f"whose radius is {found.radius:.3g}: no sphere about it leaves all cameras outside; "
            f"leave that view out, or {HINT}"
        )
    shrunk = f"shrunk from {found.radius:.4g} to leave the camera of view {nearest} outside"
    return _region(found.centre, radius, f"{found.how}, {shrunk}")


def _with_cameras_within(found: Region, cameras: Cameras) -> Region:
    """The region as it is, told with the cameras that stand within."""
    within = np.flatnonzero(np.linalg.norm(cameras.origins - found.centre, axis=1) < found.radius)
    told = f"; within it: the cameras of {listed_views(within)}" if len(within) else ""
    return _region(found.centre, found.radius, f"{found.how}{told}")


def _region(centre: np.ndarray, radius: float, source: str) -> Region:
    """The region, with its sentence."""
    place = ", ".join(f"{value:.4g}" for value in centre)
    return Region(centre, float(radius), f"region of interest: centre ({place}), radius {radius:.4g}, {source}")
