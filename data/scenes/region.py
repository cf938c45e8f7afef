"""The region of interest: the sphere around the object to be reconstructed.

If the format does not give it, it is estimated from masks, else from SfM points, else from the cameras alone.
Everything is in the world frame of the cameras, and equivariant under similarities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.cameras import LARGEST_NUMBER, evenly_spaced
from data.errors import SceneError, UserError, listed_views
from data.parsed_scene import SparsePoints
from data.scenes.frustum import Cameras, border_distances, enclosing_ball, frustum_distances, meeting_point
from data.scenes.sparse import object_points, place_points
from data.scenes.visual_hull import masked_views, visual_hull

MASKS_MARGIN = 1.1  # sphere radius over object radius, the published dataset.scale_mat_scale
POINTS_MARGIN = 1.2  # likewise for SfM points, whose outermost ones are trimmed although they may be on the object
OUTSIDE_RADII = 1.02  # smallest distance of a camera in radii: rays must not start inside the sphere
LEAST_SHRUNK = 0.5  # of the estimated radius: a smaller sphere would not contain the object
LEAST_HULL_SHRUNK = 0.8  # likewise for a visual hull: one that reaches the cameras is not bounded by the masks
LEAST_RADIUS = 1e-3  # of the median camera distance: a smaller object has one or two pixels in the images
FOCUS_SHARE = 0.6  # of the median camera distance: the largest sphere around the cameras' focus
WITHIN_SHARE = 0.9  # the same if cameras may be inside: most of them are still outside

# Distances along the optical axes, in extents of the camera positions, at which common points are searched.
SEARCHED_DEPTHS = np.geomspace(0.02, 50.0, 40)
SEARCHED_VIEWS = 64
LARGEST_ROI = 1e12  # world units, and the inverse of the smallest radius: cubes do not overflow
SAME_RATIO = 1.25  # largest ratio of the offsets of the principal point in x and y for resized images
OFF_CENTRE = 0.25  # of the image, from its centre to the principal point; a larger offset means a resize or a crop
SENTENCE = "region of interest"  # how the sentence on the source starts
ROI_HINT = 'give the region as --roi "x y z r"'


@dataclass(frozen=True, eq=False)
class Region:
    """A sphere in the world frame, with one sentence on its source."""

    centre: np.ndarray  # [3] float64
    radius: float
    how: str  # the sentence; while the radius is not final, only the source

    @property
    def scale_mat(self) -> np.ndarray:
        """[4, 4], unit sphere to world."""
        matrix = np.diag([self.radius, self.radius, self.radius, 1.0])
        matrix[:3, 3] = self.centre
        return matrix


def parse_roi(text: str) -> Region:
    """The region of `--roi "x y z r"`: centre and radius in world units, separated by spaces or commas.

    Raises UserError for any other text.
    """
    try:
        numbers = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        numbers = []
    if not text.isascii() or "_" in text:  # float() accepts other digits and underscores
        numbers = []
    usable = all(math.isfinite(number) and abs(number) <= LARGEST_ROI for number in numbers)
    if len(numbers) != 4 or not usable or numbers[3] < 1 / LARGEST_ROI:
        raise UserError(
            f'--roi "{text}": give the centre and the radius > 0 in world units, four numbers up to '
            f'{LARGEST_ROI:g}, such as --roi "0 0 0 1"'
        )
    return described_region(np.array(numbers[:3]), numbers[3], "from --roi")


def find_region(
    given: Cameras, masks: Sequence[np.ndarray] | None, points: SparsePoints | None, cameras_outside: bool = True
) -> Region:
    """The region of interest of V views: from masks, else from SfM points, else from the optical axes.

    Args:
        cameras_outside: shrink the region until no camera is inside. Otherwise it keeps its size, so that it contains
            all that the cameras look at, and most cameras are outside.
        given: the cameras, world frame.
        masks: V times uint8 [H, W], 255 on the object. points: in the world frame.
    Raises:
        SceneError: the cameras see no common point, or its distance along their axes is undetermined.
    """
    cameras = _of_unit_axes(given)
    if not np.abs(cameras.c2w).max() < LARGEST_NUMBER:
        raise SceneError(
            "the cameras contain numbers that are too large or not finite, so no region of interest can be estimated; "
            f"correct them, or {ROI_HINT}"
        )
    region = _from_masks(cameras, masks) if masks is not None else None
    if region is None and points is not None:
        region = _from_points(cameras, points, cameras_outside)
    if region is None:
        region = _from_focus(cameras, cameras_outside)
    if cameras_outside:
        return _outside_cameras(region, cameras)
    within = np.flatnonzero(np.linalg.norm(cameras.origins - region.centre, axis=1) < region.radius)
    note = f"; cameras inside: {listed_views(within)}" if len(within) else ""
    return described_region(region.centre, region.radius, f"{region.how}{note}")


def require_common_view(region: Region, given: Cameras) -> None:
    """Raises SceneError if at least half of the views do not show the region, perhaps for wrong principal points."""
    cameras = _of_unit_axes(given)
    sees = frustum_distances(region.centre[None], cameras)[:, 0] > -region.radius
    if 2 * sees.sum() > len(cameras):
        return
    principal = cameras.intrinsics[:, :2, 2]
    off = np.abs(principal - (cameras.sizes - 1) / 2).max(axis=1) / cameras.sizes.max(axis=1)
    if np.median(off) <= OFF_CENTRE:
        raise SceneError(
            f"{len(cameras) - sees.sum()} of {len(cameras)} cameras look away from the region of interest "
            f"({listed_views(np.flatnonzero(~sees))}); correct their poses, or {ROI_HINT}"
        )
    (x, y), (width, height) = principal[np.argmax(off)], cameras.sizes[np.argmax(off)].astype(int)
    across, down = 2 * x / width, 2 * y / height
    if 1 / SAME_RATIO < across / (down or 1.0) < SAME_RATIO:  # the centre, but for a factor
        raise SceneError(
            f"the cameras are for images of another size: the principal point of view {np.argmax(off)} is ({x:.4g}, "
            f"{y:.4g}) and its image has {width}x{height} pixels; use the photographs that the cameras were made for, "
            "or scale the intrinsics"
        )
    raise SceneError(
        f"the principal point of view {np.argmax(off)} is ({x:.4g}, {y:.4g}), far from the centre of its "
        f"image of {width}x{height} pixels; correct cx and cy, or use the photographs before cropping"
    )


def _of_unit_axes(given: Cameras) -> Cameras:
    """The cameras in float64 with axes of unit length, since some programs export poses with a scale."""
    cameras = Cameras(*(np.array(value, np.float64) for value in (given.intrinsics, given.c2w, given.sizes)))
    with np.errstate(divide="ignore", invalid="ignore"):
        cameras.c2w[:, :3, :3] /= np.linalg.norm(cameras.c2w[:, :3, :3], axis=1, keepdims=True)
    return cameras


def _from_masks(cameras: Cameras, masks: Sequence[np.ndarray]) -> Region | None:
    """The ball around the visual hull; None if the masks do not bound one, or it reaches a camera."""
    hull = visual_hull(masked_views(cameras, masks))
    if hull is None:
        return None
    centre, radius = enclosing_ball(hull.centres)
    radius += hull.side / 2
    if (
        np.linalg.norm(cameras.origins - centre, axis=1).min()
        < LEAST_HULL_SHRUNK * OUTSIDE_RADII * MASKS_MARGIN * radius
    ):
        return None
    left_out = hull.views[~hull.is_trusted]
    without = f" (without {listed_views(left_out)}, which contradict the others)" if len(left_out) else ""
    source = f"from the visual hull of {np.sum(hull.is_trusted)} masks{without}"
    return _unless_tiny(Region(centre, MASKS_MARGIN * radius, source), cameras)


def _from_points(cameras: Cameras, points: SparsePoints, cameras_outside: bool) -> Region | None:
    """The ball around the SfM points of the object, or of the place; None if there are too few.

    Without `cameras_outside` the radius around an object is limited so that most cameras are outside.
    """
    chosen = object_points(cameras, points)
    is_place = chosen is None
    chosen = place_points(cameras, points) if is_place else chosen
    if chosen is None:
        return None
    centre, radius = enclosing_ball(chosen)
    radius *= POINTS_MARGIN
    if not (is_place or cameras_outside):
        radius = min(radius, WITHIN_SHARE * _distance(cameras, centre))
    source = f"from {len(chosen)} of {len(points.xyz)} SfM points"
    return _unless_tiny(Region(centre, radius, source), cameras)


def _unless_tiny(region: Region, cameras: Cameras) -> Region | None:
    """The region, or None if it is too small to be an object."""
    return region if region.radius > LEAST_RADIUS * _distance(cameras, region.centre) else None


def _distance(cameras: Cameras, centre: np.ndarray) -> float:
    """The median distance of the cameras to `centre` [3]."""
    return float(np.median(np.linalg.norm(cameras.origins - centre, axis=1)))


def _from_focus(cameras: Cameras, cameras_outside: bool) -> Region:
    """The ball around the point that most cameras look at; its radius fits into the median image.

    For a square image, this is the largest ball that fits. Otherwise it is the geometric mean of the balls that fit the
    width and the height, since the aspect ratio often follows the object. Without `cameras_outside` it extends to the
    farthest border of the median image: what one image crops is visible in others.

    Raises SceneError if the cameras look at no common point, or along parallel axes.
    """
    _require_something_common(cameras)
    centre = meeting_point(cameras.origins, cameras.axes)
    if centre is None:
        raise SceneError(f"the cameras look along parallel axes, so the object's distance is undetermined; {ROI_HINT}")
    borders = [border_distances(centre[None], *camera)[0] for camera in cameras]
    fitting = np.array(borders).reshape(-1, 2, 2).min(axis=2)  # [V, 2], radii that fit the width and the height
    is_visible = fitting.min(axis=1) > 0
    if 2 * np.sum(is_visible) <= len(cameras):
        raise SceneError(
            f"the cameras look at no common point ({listed_views(np.flatnonzero(~is_visible))} do not show the one "
            f"nearest to all axes); {ROI_HINT}"
        )
    distance = _distance(cameras, centre)
    if cameras_outside:
        radius = min(np.median(np.sqrt(fitting[is_visible].prod(axis=1))), FOCUS_SHARE * distance)
    else:
        farthest = np.max(borders, axis=1)[is_visible]
        radius = min(MASKS_MARGIN * np.median(farthest), WITHIN_SHARE * distance)
    return Region(centre, radius, f"from the common focus of {len(cameras)} cameras")


def _require_something_common(cameras: Cameras) -> None:
    """Raises SceneError if no point of the optical axes is visible in more than half of the images."""
    apart = np.linalg.norm(cameras.origins - np.median(cameras.origins, axis=0), axis=1)
    extent = np.median(apart[apart > 0]) if apart.any() else 0.0
    if extent == 0:
        raise SceneError(f"all cameras are at one position, so the object's distance is undetermined; {ROI_HINT}")
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
            f"leave out the views that show other places, correct the poses, or {ROI_HINT}"
        )


def _outside_cameras(region: Region, cameras: Cameras) -> Region:
    """The region, shrunk until no camera is inside; SceneError if less than LEAST_SHRUNK of the radius remains."""
    distances = np.linalg.norm(cameras.origins - region.centre, axis=1)
    nearest = int(np.argmin(distances))
    radius = distances[nearest] / OUTSIDE_RADII
    if radius >= region.radius:
        return described_region(region.centre, region.radius, region.how)
    if radius < LEAST_SHRUNK * region.radius:
        raise SceneError(
            f"the camera of view {nearest} is {distances[nearest]:.3g} from the centre of the region of interest, "
            f"whose radius is {region.radius:.3g}: no sphere around the object excludes all cameras; "
            f"leave that view out, or {ROI_HINT}"
        )
    shrunk = f"shrunk from {region.radius:.4g} to exclude the camera of view {nearest}"
    return described_region(region.centre, radius, f"{region.how}, {shrunk}")


def described_region(centre: np.ndarray, radius: float, source: str) -> Region:
    """The region with the sentence on its place, its size and its source that is logged."""
    *place, size = region_words(centre, radius)
    return Region(centre, float(radius), f"{SENTENCE}: centre ({', '.join(place)}), radius {size}, {source}")


def region_words(centre: np.ndarray, radius: float) -> list[str]:
    """Centre and radius with four digits of the radius, as `--roi` takes them."""
    return [*in_digits(centre, radius), f"{radius:.4g}"]


def in_digits(values: np.ndarray, size: float, digits: int = 4) -> list[str]:
    """Coordinates of something of a size with that many digits of the size, also far from the origin."""
    ratio = np.abs(values).max() / size if size else 1.0
    digits += max(0, math.ceil(math.log10(ratio))) if 1 < ratio < math.inf else 0
    return [f"{value:.{digits}g}" for value in values]
