"""Checks of the images and masks of a scene: blur, exposure, masks that contradict each other.

A view is compared with its neighbours, which show nearly the same content.
"""

from __future__ import annotations

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.errors import listed_views
from data.io.images import size_within
from data.parsed_scene import MASK_HALF
from data.prepare.inspection.epipolar import Finding, graded
from data.scenes.frustum import Cameras
from data.scenes.scene import Scene
from data.scenes.visual_hull import masked_views, visual_hull

SMALLEST = 1e-6  # radii, of a camera from the centre; avoids a division by zero
NEIGHBOURS = 6  # enough that one outlier hardly changes their median
LARGEST_SIDE = 1024  # pixels; images are reduced to this size. Blur that is invisible at this size does no harm
LEAST_PIXELS = 200  # of the object in the reduced image; fewer give no reliable value
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
UNEVEN = 0.75
FAIR_UNEVEN = 0.1  # fraction of the views
# Agreement of a mask with the hull of all masks. For perfect masks a hull of cubes gives 0.9 to 0.95.
GOOD_AGREEMENT, FAIR_AGREEMENT = 0.8, 0.6

OUTLINED = 12  # views whose outlines are compared with edges
# Of masks of DTU scan 65, lego and two rendered objects, and of these dilated by 3 to 10 pixels, the strongest edges
# are within a pixel of the true outline, three to fifteen times as strong as at the outline of the dilated masks.
WIDE, CLEARER, REACH = 2.5, 1.5, 0.06  # pixels of the reduced image, ratio of strengths, fraction of the longer side
ALONE, UNKNOWN = "no neighbours to compare with", "cannot be judged"


def sharpness(scene: Scene, directions: np.ndarray) -> Finding:
    """The views that are blurred relative to their neighbours; `directions` [V, 3] from the sphere to the cameras."""
    values = np.array([_laplacian(*_object(scene, view)) for view in range(scene.n_views)])
    ratio = _over_neighbours(values, directions)
    if not _any(values):
        consequence = "the surface inside its outline is undetermined: add texture or light"
        return Finding("sharpness", "no texture in any view", "bad", consequence)
    together = values / np.nanquantile(values, SHARPER)
    blurred = _worst_first(np.fmin(ratio, together), (ratio < BLURRED) | (together < BLURRED_TOGETHER))
    worst = f"the least sharp has {np.nanmin(ratio):.2f} of its neighbours' sharpness" if _any(ratio) else ALONE
    if not len(blurred):
        consequence = f"no view is blurred: a blurred one has less than {BLURRED:g}" if _any(ratio) else UNKNOWN
        return Finding("sharpness", worst, "good", consequence)
    figure = f"blurred: {listed_views(blurred, scene.photographs)}; {worst}"
    consequence = "blurred views remove detail from the reconstruction: leave them out or take them again"
    return Finding("sharpness", figure, graded(len(blurred) / scene.n_views, 0.0, FAIR_BLURRED), consequence)


def exposure(scene: Scene, directions: np.ndarray) -> Finding:
    """The views that are brighter or darker than their neighbours."""
    stops = _stops(scene, directions)
    off = _worst_first(-np.abs(stops), np.abs(stops) > UNEVEN)
    spread = (
        f"views differ from their neighbours by up to {np.nanmax(np.abs(stops)):.1f} stops" if _any(stops) else ALONE
    )
    if not len(off):
        even = f"no view stands out: up to {UNEVEN:g} stops can come from what the views show"
        consequence = even if _any(stops) else UNKNOWN
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
    if verdict == "good" and (wide := outline_offset(scene)) >= WIDE:
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
        (size, scale), mask = size_within(scene.size(view), LARGEST_SIDE), (scene.masks or ())[view]
        small = cv2.resize(scene.images[view], size, interpolation=cv2.INTER_AREA)
        grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
        inside = (cv2.resize(mask, size, interpolation=cv2.INTER_AREA) > MASK_HALF).astype(np.uint8)
        strength = _strength_by_depth(grey, inside)
        deepest = int(np.argmax(strength))
        is_clear = strength[deepest] > CLEARER * strength[: round(WIDE) + 1].max()
        offsets.append(deepest / scale if is_clear else 0.0)
    return float(np.median(offsets))


def _strength_by_depth(grey: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The mean gradient across the outline of a mask, uint8 [h, w], of an image [h, w], 0, 1, ... pixels inside it."""
    reach = max(2, round(REACH * max(grey.shape)))
    depth = cv2.distanceTransform(inside, cv2.DIST_L2, 5) - cv2.distanceTransform(1 - inside, cv2.DIST_L2, 5)
    smooth = cv2.GaussianBlur(depth, (0, 0), 2)
    inwards, gradient = (
        np.stack([cv2.Sobel(values, cv2.CV_32F, dx, dy) for dx, dy in ((1, 0), (0, 1))]) for values in (smooth, grey)
    )
    across = np.abs((inwards * gradient).sum(axis=0)) / np.maximum(np.linalg.norm(inwards, axis=0), SMALLEST)
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
    size, scale = size_within(scene.size(view), LARGEST_SIDE)
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
    if inside.sum() < LEAST_PIXELS or (contrast := float(grey[inside].var())) < 1e-6:
        return float("nan")
    return float(cv2.Laplacian(grey, cv2.CV_32F)[inside].var()) / contrast


def _brightness(grey: np.ndarray, inside: np.ndarray) -> float:
    """The median of the object's pixels; NaN if there are too few."""
    return float(np.median(grey[inside])) if inside.sum() >= LEAST_PIXELS else float("nan")


def exposure_spread(scene: Scene) -> float:
    """Median difference in brightness between a view and its neighbours, in stops; 0 where it cannot be measured."""
    centres = scene.c2w[:, :3, 3]
    stops = np.abs(_stops(scene, centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), SMALLEST)))
    known = stops[np.isfinite(stops)]
    return float(np.median(known)) if len(known) else 0.0


def _stops(scene: Scene, directions: np.ndarray) -> np.ndarray:
    """The brightness of each view relative to its neighbours, in stops [V]; NaN where it is unknown."""
    values = np.array([_brightness(*_object(scene, view)) for view in range(scene.n_views)])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log2(_over_neighbours(values, directions))


def _over_neighbours(values: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """`values` [V] divided by the median of their nearest neighbours by direction; NaN without neighbours."""
    ratios = np.full(len(values), np.nan)
    known = np.flatnonzero(np.isfinite(values) & (values > 0))
    for view in known:
        others = known[known != view]
        nearest = others[np.argsort(-(directions[others] @ directions[view]))][:NEIGHBOURS]
        if len(nearest):
            ratios[view] = values[view] / np.median(values[nearest])
    return ratios


def _worst_first(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The indices of the `chosen` [V] views, ascending by `values`."""
    views = np.flatnonzero(chosen)
    return views[np.argsort(values[views])]


def _any(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).any())
