"""Checks of a scene: what is measured, how it is graded, and what it means for the training.

The scene is in its working frame: the region of interest is the unit sphere at the origin. V views. docs/formats.md
lists the checks. Images and masks are compared with those of neighbouring views, which show nearly the same content.
"""

from __future__ import annotations

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.errors import listed_views
from data.parsed_scene import MASK_HALF
from data.pixels import size_within
from data.prepare.inspection.epipolar import Finding, graded
from data.prepare.inspection.epipolar import cameras as camera_check
from data.prepare.walk import BESIDE
from data.scenes.frustum import Cameras, frustum_distances, sphere_points
from data.scenes.scene import Scene
from data.scenes.sparse import LEAST_REGION_POINTS, well_supported
from data.scenes.visual_hull import masked_views, visual_hull

VERDICTS = ("good", "fair", "bad")

# Number of views: the published recipe trains on 49 or 64; with fewer than eight the surface is underdetermined.
GOOD_VIEWS, FAIR_VIEWS = 20, 8

# Fraction of all directions observed so: 0.71 for a ring around the object, 0.4 for a half ring, 0.15 for one side.
GOOD_COVERAGE, FAIR_COVERAGE = 0.6, 0.3
SPHERE_SAMPLES = 2000  # sampled; 20 of them are 1 % of the sphere

# Two views triangulate a point; a third one verifies it.
SURE_VIEWS = 3
GOOD_OVERLAP, FAIR_OVERLAP = 0.95, 0.75  # fraction of the sphere's volume visible in SURE_VIEWS views

# Degrees from a view to its nearest neighbour, the largest gap: beyond 35 the same detail looks different.
GOOD_GAP, FAIR_GAP = 35.0, 50.0
SMALLEST_GAP = 0.5  # median, degrees: redundant frames of a video

# Degrees between the two views farthest apart: the depth error is about one pixel over the sine of this angle.
GOOD_PARALLAX, FAIR_PARALLAX = 40.0, 12.0

# Diameter of the sphere over the shorter side of the image. Rays are sampled over the whole image: at 0.4 one in eight
# hits the sphere, at 0.2 one in thirty. At 2 an image shows a quarter of the region.
GOOD_SMALLEST, FAIR_SMALLEST = 0.4, 0.2
GOOD_LARGEST, FAIR_LARGEST = 2.0, 4.0

# SfM points in the sphere: every eighth is held out for evaluation, and a median needs some tens of them.
GOOD_POINTS = 240

FAIR_STRAYED = 0.1  # fraction of the views that do not show the sphere's centre
# A surface patch is well observed by a camera within this angle of its normal; beyond, foreshortening reduces it to
# less than 0.7 of its size.
SEEN_ANGLE = 45.0  # degrees

SMALLEST_LENGTH = 1e-6  # radii, of a camera from the centre; avoids a division by zero
COMPARED_VIEWS = 6  # enough that one outlier hardly changes their median
CHECKED_SIDE = 1024  # pixels; images are reduced to this size. Blur that is invisible at this size does no harm
LEAST_OBJECT_PIXELS = 200  # of the object in the reduced image; fewer give no reliable value
ERODED = 2  # pixels; the outline is excluded, where sharpness depends on the mask

# Sharpness relative to the median neighbour. On four scenes, two of them real, the lowest value is 0.22; a Gaussian
# blur with a standard deviation of one pixel reduces it to 0.08 to 0.2.
BLURRED = 0.2
# Sharpness relative to the quantile SHARPER of all views, for groups of blurred neighbours. On the same scenes the
# lowest value is 0.31; for a third of the views, adjacent and blurred by 1.5 pixels, the highest is 0.06.
BLURRED_TOGETHER = 0.1
SHARPER = 0.75
FAIR_BLURRED = 0.1  # fraction of the views
# Brightness relative to the median neighbour, in stops (factors of two). In well exposed scenes neighbours differ by up
# to 0.6, because they show more of a bright or a dark part.
UNEVEN_STOPS = 0.75
FAIR_UNEVEN = 0.1  # fraction of the views
# Agreement of a mask with the hull of all masks. For perfect masks a hull of cubes gives 0.9 to 0.95.
GOOD_AGREEMENT, FAIR_AGREEMENT = 0.8, 0.6

OUTLINED = 12  # views whose outlines are compared with edges
# Of masks of DTU scan 65, lego and two rendered objects, and of these dilated by 3 to 10 pixels, the strongest edges
# are within a pixel of the true outline, three to fifteen times as strong as at the outline of the dilated masks.
# Pixels of the reduced image, ratio of strengths, fraction of the longer side:
WIDE_OUTLINE, CLEARER, OUTLINE_REACH = 2.5, 1.5, 0.06
NO_NEIGHBOURS, NOT_JUDGED = "no neighbours to compare with", "cannot be judged"


def findings(scene: Scene) -> tuple[Finding, ...]:
    """The results of all checks, in the order of the table."""
    directions = _directions(scene)
    *geometry, points = _of_geometry(scene)
    images = camera_check(scene), sharpness(scene, directions), exposure(scene, directions)
    return (*geometry, *images, masks(scene, scene.cameras), points)


def bad_geometry(scene: Scene) -> list[Finding]:
    """The bad ones of the results that need no image, which take no time."""
    return [finding for finding in _of_geometry(scene) if finding.verdict == "bad"]


def _directions(scene: Scene) -> np.ndarray:
    """Unit vectors [V, 3] from the centre of the sphere to the cameras."""
    origins = scene.cameras.origins
    return origins / np.maximum(np.linalg.norm(origins, axis=1, keepdims=True), SMALLEST_LENGTH)


def _of_geometry(scene: Scene) -> tuple[Finding, ...]:
    cameras, directions = scene.cameras, _directions(scene)
    widest = float(_angles(directions).max())
    return (
        _rated(
            "views",
            f"{scene.n_views}",
            graded(scene.n_views, GOOD_VIEWS, FAIR_VIEWS),
            "there are enough views for the published recipes",
            "parts that few views show stay coarse: take more photographs of them",
            "so few views do not determine the shape: take at least eight photographs, better thirty",
        ),
        _coverage(scene, directions),
        _overlap(cameras),
        _baseline(scene, directions),
        _rated(
            "parallax",
            f"{widest:.0f} degrees between the outermost views",
            graded(widest, GOOD_PARALLAX, FAIR_PARALLAX),
            "the views determine the depths",
            "depth is less accurate than the lateral position: walk farther around the object",
            "the views are too similar to determine depth: walk around the object",
        ),
        _sphere_size(cameras),
        _aim(scene, cameras),
        _points(scene),
    )


def _rated(check: str, figure: str, verdict: str, *consequences: str) -> Finding:
    """The finding with the one of the `consequences` of VERDICTS that belongs to its verdict."""
    return Finding(check, figure, verdict, consequences[VERDICTS.index(verdict)])


def _coverage(scene: Scene, directions: np.ndarray) -> Finding:
    """The fraction of directions around the sphere with a camera within SEEN_ANGLE."""
    cosines = (sphere_points(SPHERE_SAMPLES) @ directions.T).max(axis=1)
    share = float(np.mean(cosines >= np.cos(np.deg2rad(SEEN_ANGLE))))
    figure = f"{share:.0%} of the sphere within {SEEN_ANGLE:.0f} degrees of a view"
    sides = missing_sides(scene)
    return _rated(
        "coverage",
        figure + (f", none from {sides}" if sides else ""),
        graded(share, GOOD_COVERAGE, FAIR_COVERAGE),
        "most sides are observed; the mesh is arbitrary only where no camera looks",
        "the mesh is arbitrary on the sides that no camera sees: photograph them, or cut them off the mesh",
        "only one side is observed: the back of the mesh is arbitrary",
    )


def _overlap(cameras: Cameras) -> Finding:
    """The fraction of the unit ball's volume inside SURE_VIEWS frustums; occlusion is ignored."""
    # Radii uniform in volume. They use sqrt(2), since the golden ratio of the directions would correlate with them.
    radii = np.cbrt((np.arange(SPHERE_SAMPLES) * np.sqrt(2)) % 1.0)
    n_views = np.sum(frustum_distances(sphere_points(SPHERE_SAMPLES) * radii[:, None], cameras) > 0, axis=0)
    share = float(np.mean(n_views >= SURE_VIEWS))
    return _rated(
        "overlap",
        f"{share:.0%} of the sphere in {SURE_VIEWS} or more images, median {np.median(n_views):.0f}",
        graded(share, GOOD_OVERLAP, FAIR_OVERLAP),
        "nearly all of the sphere is visible in several views",
        "parts visible in fewer than three views may float: photograph them more or choose a smaller sphere",
        "most of the sphere is visible in too few views: choose a smaller one (--roi) or aim the cameras at it",
    )


def _angles(directions: np.ndarray) -> np.ndarray:
    """Pairwise angles [V, V] of `directions` [V, 3], degrees."""
    return np.rad2deg(np.arccos(np.clip(directions @ directions.T, -1, 1)))


def _baseline(scene: Scene, directions: np.ndarray) -> Finding:
    """The angle between each view and its nearest neighbour at the sphere's centre."""
    if len(directions) < 2:
        return Finding("baseline", "one view", "bad", "depth cannot be determined from a single view")
    angles = _angles(directions)
    np.fill_diagonal(angles, np.inf)
    nearest = angles.min(axis=1)
    lonely = int(np.argmax(nearest))
    verdict = graded(nearest[lonely], GOOD_GAP, FAIR_GAP)
    figure = f"{np.median(nearest):.1f} degrees to the next view (median), at most {nearest[lonely]:.1f}"
    if verdict != "good":
        name = listed_views(np.array([lonely]), scene.photographs)
        return Finding("baseline", figure, verdict, f"{name} has no near neighbour: add a photograph in between")
    if np.median(nearest) < SMALLEST_GAP:
        away = np.abs(angles.argmin(axis=1) - np.arange(len(angles)))
        consequence = (
            "many views are redundant: every second one is enough"
            if np.median(away) <= BESIDE
            else "views far apart in their order lie on each other: the camera was there twice, or sides look alike"
        )
        return Finding("baseline", figure, "fair", consequence)
    return Finding("baseline", figure, verdict, "neighbouring views show the same details")


def _sphere_size(cameras: Cameras) -> Finding:
    """The diameter of the sphere in the images, in pixels."""
    squared = np.sum(cameras.origins**2, axis=1)
    focal = np.sqrt(np.abs(np.linalg.det(cameras.intrinsics[:, :2, :2])))
    pixels = 2 * focal / np.sqrt(np.maximum(squared - 1, 1e-6))
    share = float(np.median(pixels / cameras.sizes.min(axis=1)))
    cut = int(np.sum(frustum_distances(np.zeros((1, 3)), cameras)[:, 0] < 1))
    small, large = graded(share, GOOD_SMALLEST, FAIR_SMALLEST), graded(share, GOOD_LARGEST, FAIR_LARGEST)
    figure = f"{share:.2f} of the image's shorter side, {np.median(pixels):.0f} pixels; cut off in {cut} images"
    if small != "good":
        consequence = "few rays hit the sphere and details have few pixels: crop the photographs, or go nearer"
        return Finding("sphere size", figure, small, consequence)
    if large != "good":
        consequence = "each image shows a small part of the sphere: choose a smaller one (--roi) or step back"
        return Finding("sphere size", figure, large, consequence)
    return Finding("sphere size", figure, "good", "most rays hit the sphere")


def _aim(scene: Scene, cameras: Cameras) -> Finding:
    """The views that do not show the sphere's centre, or nothing of the sphere."""
    deep = frustum_distances(np.zeros((1, 3)), cameras)[:, 0]
    strayed, blind = np.flatnonzero(deep <= 0), np.flatnonzero(deep <= -1)
    if not len(strayed):
        return Finding("aim", "every image shows the centre of the sphere", "good", "all views contribute")
    if len(blind):
        figure = f"{listed_views(blind, scene.photographs)} show{'s' if len(blind) == 1 else ''} nothing of the sphere"
        consequence = "these views do not show the object: leave them out or correct their poses"
        return Finding("aim", figure, "bad", consequence)
    verdict = graded(len(strayed) / scene.n_views, 0.0, FAIR_STRAYED)
    figure = f"the centre of the sphere is outside {listed_views(strayed, scene.photographs)}"
    return Finding("aim", figure, verdict, "these views show only the rim of the sphere: check the region of interest")


def _points(scene: Scene) -> Finding:
    """The number of SfM points, which support the training and evaluate its surface."""
    if scene.points is None:
        lack = "the surface can be evaluated only by held-out photographs"
        if scene.masks is not None:
            return Finding("points", "none", "good", f"the masks give the initial shape; {lack}")
        return Finding("points", "none", "fair", f"{lack}: dataset.triangulate_points=True triangulates points")
    count = int((np.linalg.norm(well_supported(scene.points), axis=1) <= 1).sum())
    return _rated(
        "points",
        f"{count} of {len(scene.points.xyz)} in the sphere",
        graded(count, GOOD_POINTS, LEAST_REGION_POINTS),
        "they support the training, and every eighth is held out to evaluate the surface",
        "too few to evaluate the surface: compare it with the photographs",
        "almost none are in the sphere: check whether it contains the object (--roi)",
    )


def missing_sides(scene: Scene) -> str:
    """The sides without a camera within SEEN_ANGLE of them, "" if there are none.

    The front is the side of the photograph nearest to the mean of the cameras; left and right are those of its
    photographer. Nothing is said of what is below, where an object stands, or if cameras are inside the region.
    """
    places = scene.c2w[:, :3, 3]
    if np.linalg.norm(places, axis=1).min() <= 1.0:
        return ""
    directions = places / np.linalg.norm(places, axis=1, keepdims=True)
    up = -scene.c2w[:, :3, 1].mean(axis=0) if scene.frame is None else scene.scene_to_world[2, :3]  # the world's z axis
    up = up / np.maximum(np.linalg.norm(up), np.finfo(float).tiny)
    level = directions - np.outer(directions @ up, up)
    first = int(np.argmax(level @ level.mean(axis=0)))
    front = level[first] / np.maximum(np.linalg.norm(level[first]), np.finfo(float).tiny)
    right = np.cross(up, front)
    sides = {"the left": -right, "the right": right, "behind": -front, "above": up}
    least = np.cos(np.radians(SEEN_ANGLE))
    missing = [name for name, side in sides.items() if (directions @ side).max() < least]
    return f"{', '.join(missing)} (the front is that of {scene.photographs[first]})" if missing else ""


def sharpness(scene: Scene, directions: np.ndarray) -> Finding:
    """The views that are blurred relative to their neighbours; `directions` [V, 3] from the sphere to the cameras."""
    values = np.array([_laplacian(*_object(scene, view)) for view in range(scene.n_views)])
    ratio = _over_neighbours(values, directions)
    if not _any(values):
        consequence = "the surface inside its outline is undetermined: add texture or light"
        return Finding("sharpness", "no texture in any view", "bad", consequence)
    together = values / np.nanquantile(values, SHARPER)
    blurred = _worst_first(np.fmin(ratio, together), (ratio < BLURRED) | (together < BLURRED_TOGETHER))
    worst = f"the least sharp has {np.nanmin(ratio):.2f} of its neighbours' sharpness" if _any(ratio) else NO_NEIGHBOURS
    if not len(blurred):
        consequence = f"no view is blurred: a blurred one has less than {BLURRED:g}" if _any(ratio) else NOT_JUDGED
        return Finding("sharpness", worst, "good", consequence)
    figure = f"blurred: {listed_views(blurred, scene.photographs)}; {worst}"
    consequence = "blurred views remove detail from the reconstruction: leave them out or take them again"
    return Finding("sharpness", figure, graded(len(blurred) / scene.n_views, 0.0, FAIR_BLURRED), consequence)


def exposure(scene: Scene, directions: np.ndarray) -> Finding:
    """The views that are brighter or darker than their neighbours."""
    stops = _stops(scene, directions)
    off = _worst_first(-np.abs(stops), np.abs(stops) > UNEVEN_STOPS)
    spread = (
        f"views differ from their neighbours by up to {np.nanmax(np.abs(stops)):.1f} stops"
        if _any(stops)
        else NO_NEIGHBOURS
    )
    if not len(off):
        even = f"no view stands out: up to {UNEVEN_STOPS:g} stops can come from what the views show"
        consequence = even if _any(stops) else NOT_JUDGED
        return Finding("exposure", spread, "good", consequence)
    figure = f"{spread}: {listed_views(off, scene.photographs)}"
    consequence = "colours that change between views distort the shape: fix exposure and white balance"
    return Finding("exposure", figure, graded(len(off) / scene.n_views, 0.0, FAIR_UNEVEN), consequence)


def masks(scene: Scene, cameras: Cameras) -> Finding:
    """The masks that contradict the visual hull of all; `cameras` in the working frame."""
    if scene.masks is None:
        consequence = "train with train.mask_weight = 0; everything inside the sphere is reconstructed"
        return Finding("masks", "none", "good", consequence)
    empty = np.flatnonzero([mask.max() <= MASK_HALF for mask in scene.masks])
    hull = visual_hull(masked_views(cameras, scene.masks))
    if hull is None:
        consequence = "the masks bound no common volume: check that masks and cameras belong together"
        return Finding("masks", "no volume that most masks agree on", "bad", consequence)
    figure = (
        f"agree with their visual hull to {np.median(hull.agreement):.2f} (median), at least {hull.agreement.min():.2f}"
    )
    wrong = hull.views[np.argsort(hull.agreement)][: int(np.sum(hull.agreement < GOOD_AGREEMENT))]
    verdict = graded(float(hull.agreement.min()), GOOD_AGREEMENT, FAIR_AGREEMENT)
    if len(wrong):
        consequence = "a wrong mask cuts the object or leaves floating pieces: correct it or leave the view out"
        figure = f"{figure}; contradicted: {listed_views(wrong, scene.photographs)}"
        return Finding("masks", figure, verdict, consequence)
    if len(empty):
        consequence = "an empty mask means that the view does not show the object: correct it or leave the view out"
        return Finding("masks", f"{figure}; empty: {listed_views(empty, scene.photographs)}", "bad", consequence)
    if verdict == "good" and (wide := outline_offset(scene)) >= WIDE_OUTLINE:
        figure = f"{figure}; the edges of the object are {wide:.1f} pixels inside the outlines of the masks (median)"
        consequence = "masks that are too wide make the object too large: shrink them to its edges"
        return Finding("masks", figure, "fair", consequence)
    return Finding("masks", figure, verdict, "the masks agree on one shape")


def outline_offset(scene: Scene) -> float:
    """By how many pixels the edges of the object are inside the outlines of the masks, the median over some views; 0
    where no edges stand out there.
    """
    offsets = []
    for view in evenly_spaced(scene.n_views, OUTLINED):
        (size, scale), mask = size_within(scene.size(view), CHECKED_SIDE), (scene.masks or ())[view]
        small = cv2.resize(scene.images[view], size, interpolation=cv2.INTER_AREA)
        grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
        inside = (cv2.resize(mask, size, interpolation=cv2.INTER_AREA) > MASK_HALF).astype(np.uint8)
        strength = _strength_by_depth(grey, inside)
        deepest = int(np.argmax(strength))
        is_clear = strength[deepest] > CLEARER * strength[: round(WIDE_OUTLINE) + 1].max()
        offsets.append(deepest / scale if is_clear else 0.0)
    return float(np.median(offsets))


def _strength_by_depth(grey: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The mean gradient across the outline of a mask, uint8 [h, w], of an image [h, w], 0, 1, ... pixels inside it."""
    reach = max(2, round(OUTLINE_REACH * max(grey.shape)))
    depth = cv2.distanceTransform(inside, cv2.DIST_L2, 5) - cv2.distanceTransform(1 - inside, cv2.DIST_L2, 5)
    smooth = cv2.GaussianBlur(depth, (0, 0), 2)
    inwards, gradient = (
        np.stack([cv2.Sobel(values, cv2.CV_32F, dx, dy) for dx, dy in ((1, 0), (0, 1))]) for values in (smooth, grey)
    )
    across = np.abs((inwards * gradient).sum(axis=0)) / np.maximum(np.linalg.norm(inwards, axis=0), SMALLEST_LENGTH)
    bins = np.rint(np.abs(depth - 0.5)).astype(int)  # the outline is between two pixels
    used = (depth > -2) & (bins <= reach)
    used[:reach] = used[-reach:] = used[:, :reach] = used[:, -reach:] = False  # the object goes on outside the image
    count = np.bincount(bins[used], minlength=reach + 1)
    return np.bincount(bins[used], weights=across[used], minlength=reach + 1) / np.maximum(count, 1)


def _object(scene: Scene, view: int) -> tuple[np.ndarray, np.ndarray]:
    """The reduced grey image, float32 [h, w] in [0, 1], and its object pixels, bool [h, w].

    Object pixels are those inside the mask or, without masks, inside the disc of the sphere.
    """
    image = scene.images[view]
    size, scale = size_within(scene.size(view), CHECKED_SIDE)
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA) if scale < 1 else image
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32) / np.iinfo(image.dtype).max
    if scene.masks is not None:
        mask = cv2.resize(scene.masks[view], size, interpolation=cv2.INTER_AREA) > MASK_HALF
        side = 2 * ERODED + 1
        return grey, cv2.erode(mask.astype(np.uint8), np.ones((side, side), np.uint8)) > 0
    return grey, _disc(scene, view, size, scale)


def _disc(scene: Scene, view: int, size: tuple[int, int], scale: float) -> np.ndarray:
    """The pixels of the sphere in an image of `size`, reduced by `scale`: bool [h, w], approximated by a circle."""
    middle = -scene.c2w[view, :3, 3] @ scene.c2w[view, :3, :3]
    width, height = size
    if middle[2] <= 0:
        return np.zeros((height, width), dtype=bool)
    pixel = scale * (scene.intrinsics[view] @ middle)[:2] / middle[2]
    radius = scale * scene.intrinsics[view, 0, 0] / np.sqrt(max(middle @ middle - 1, 1e-6))
    x, y = np.arange(width) - pixel[0], np.arange(height) - pixel[1]
    return x**2 + y[:, None] ** 2 < radius**2


def _laplacian(grey: np.ndarray, inside: np.ndarray) -> float:
    """Variance of the Laplacian over the variance of the image; NaN without texture.

    The focus measure of Pech-Pacheco et al., Diatom autofocusing in brightfield microscopy (ICPR 2000), made
    independent of brightness and contrast.
    """
    if inside.sum() < LEAST_OBJECT_PIXELS or (contrast := float(grey[inside].var())) < 1e-6:
        return float("nan")
    return float(cv2.Laplacian(grey, cv2.CV_32F)[inside].var()) / contrast


def exposure_spread(scene: Scene) -> float:
    """Median difference in brightness between a view and its neighbours, in stops; 0 where it cannot be measured."""
    stops = np.abs(_stops(scene, _directions(scene)))
    known = stops[np.isfinite(stops)]
    return float(np.median(known)) if len(known) else 0.0


def _stops(scene: Scene, directions: np.ndarray) -> np.ndarray:
    """The brightness of each view relative to its neighbours, in stops [V]; NaN where it is unknown."""
    pixels = (grey[inside] for grey, inside in (_object(scene, view) for view in range(scene.n_views)))
    values = np.array([np.median(own) if len(own) >= LEAST_OBJECT_PIXELS else np.nan for own in pixels])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log2(_over_neighbours(values, directions))


def _over_neighbours(values: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """`values` [V] divided by the median of their nearest neighbours by direction; NaN without neighbours."""
    ratios = np.full(len(values), np.nan)
    known = np.flatnonzero(np.isfinite(values) & (values > 0))
    for view in known:
        others = known[known != view]
        nearest = others[np.argsort(-(directions[others] @ directions[view]))][:COMPARED_VIEWS]
        if len(nearest):
            ratios[view] = values[view] / np.median(values[nearest])
    return ratios


def _worst_first(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The indices of the `chosen` [V] views, ascending by `values`."""
    views = np.flatnonzero(chosen)
    return views[np.argsort(values[views])]


def _any(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).any())
