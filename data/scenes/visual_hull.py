"""The visual hull of the masks (Laurentini 1994), carved as cubes from coarse to fine.

Masks of real scenes contain errors, so the views vote: a cube is kept if, in all but a few of the images that show it,
it projects onto the mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from data.cameras import affine, evenly_spaced, pixels_to_rays
from data.parsed_scene import MASK_HALF
from data.pixels import size_of, size_within
from data.scenes.frustum import Cameras, cell_centres, meeting_point, octants

MOST_HULL_VIEWS = 120  # evenly chosen; more do not change a hull of this resolution
MASK_SIDE = 192  # pixels; the longer side of the reduced masks
FULLEST_MASK = 0.95  # of the image; a fuller mask does not constrain the hull
FIRST_CUBES = 24  # per side of the first box
# Per longest side of the hull, so that its silhouettes fit the masks; limited by MOST_CUBES.
FINEST_CUBES = 64
MOST_CUBES = 200_000  # refinement stops beyond
FIRST_BOX = 2.0  # half the side of the first box, in object radii of the median view; room for elongated objects
COARSEST_CELLS = 32  # per edge of the cube around the unit sphere at the coarsest level
GROWTHS = 3  # how often the box is doubled if the hull reaches its walls

TOLERANCE = 0.2  # fraction of the views that may reject a kept cube while wrong masks are included
STRICT_TOLERANCE = 0.03  # the same without the wrong masks, for ragged outlines
TRUSTED_AGREEMENT = 0.6  # of the median agreement with the hull: a mask below it is wrong


@dataclass(frozen=True, eq=False)
class MaskedViews:
    """W reduced masks with cameras that fit them."""

    views: np.ndarray  # [W] int, their indices in the scene
    cameras: Cameras  # of the reduced masks
    masks: tuple[np.ndarray, ...]  # W times [h, w] uint8, 1 on the object

    def pick(self, chosen: np.ndarray) -> MaskedViews:
        """The views where `chosen` [W] is True."""
        rows = np.flatnonzero(chosen)
        return MaskedViews(self.views[rows], self.cameras.pick(rows), tuple(self.masks[row] for row in rows))


@dataclass(frozen=True, eq=False)
class Hull:
    """N cubes that fill the hull, aligned with the axes of the first view's camera."""

    centres: np.ndarray  # [N, 3]
    side: float
    views: np.ndarray  # [W] int, indices of the views
    agreement: np.ndarray  # [W], intersection over union of each view's mask and the hull's silhouette
    is_trusted: np.ndarray  # [W] bool, False for a mask that contradicts the others and was left out


def masked_views(cameras: Cameras, masks: Sequence[np.ndarray]) -> MaskedViews:
    """The views whose `masks` (uint8 [H, W], 255 on the object) are neither empty nor full."""
    chosen = evenly_spaced(len(cameras), MOST_HULL_VIEWS)
    reduced = [_reduced(masks[view]) for view in chosen]
    is_used = np.array([0 < mask.mean() < FULLEST_MASK for mask in reduced], dtype=bool)
    chosen, reduced = chosen[is_used], [mask for mask, ok in zip(reduced, is_used, strict=True) if ok]
    sizes = np.array([size_of(mask) for mask in reduced], dtype=np.float64).reshape(-1, 2)
    scales = sizes / cameras.sizes[chosen]
    to_reduced = np.zeros((len(chosen), 3, 3))
    to_reduced[:, 0, 0], to_reduced[:, 1, 1], to_reduced[:, 2, 2] = scales[:, 0], scales[:, 1], 1
    to_reduced[:, :2, 2] = 0.5 * scales - 0.5  # pixel (0, 0) is a centre: x' + 0.5 = scale * (x + 0.5)
    small = Cameras(to_reduced @ cameras.intrinsics[chosen], cameras.c2w[chosen], sizes)
    return MaskedViews(chosen, small, tuple(reduced))


def visual_hull(views: MaskedViews) -> Hull | None:
    """The hull that most of `views` agree on; None if their masks bound no volume.

    A first carving tolerates wrong masks; masks that contradict its result are left out of the second.
    """
    if len(views.views) < 2:
        return None
    axes = views.cameras.c2w[0, :3, :3]  # cubes aligned with a camera make the result rotation-equivariant
    turn = affine(axes.T)
    views = replace(views, cameras=replace(views.cameras, c2w=turn @ views.cameras.c2w))
    loose = _carve(views, TOLERANCE)
    if loose is None:
        return None
    agreement = _agreements(*loose, views)
    is_trusted = agreement >= TRUSTED_AGREEMENT * np.median(agreement)
    trusted = views.pick(is_trusted)
    strict = loose[0][_stays(*loose, 1.0, trusted, _distances(trusted), STRICT_TOLERANCE)]
    centres = strict if len(strict) else loose[0]
    agreement = _agreements(centres, loose[1], views)
    return Hull(centres @ axes.T, loose[1], views.views, agreement, is_trusted)


def _distances(views: MaskedViews) -> list[np.ndarray]:
    """W distance transforms [h, w]: pixels to the nearest pixel of the mask."""
    return [cv2.distanceTransform(1 - mask, cv2.DIST_L2, cv2.DIST_MASK_PRECISE) for mask in views.masks]


def _reduced(mask: np.ndarray) -> np.ndarray:
    """`mask` uint8 [H, W] as 0 and 1, its longer side at most MASK_SIDE pixels."""
    size, _ = size_within(size_of(mask), MASK_SIDE)
    on = (mask > MASK_HALF).astype(np.uint8)
    return (cv2.resize(255 * on, size, interpolation=cv2.INTER_AREA) > MASK_HALF).astype(np.uint8)


def _carve(views: MaskedViews, tolerance: float) -> tuple[np.ndarray, float] | None:
    """Centres [N, 3] and side of the kept cubes; None if there are none or they are unbounded."""
    box = _first_box(views)
    if box is None:
        return None
    distances = _distances(views)
    centre, half = box
    for _ in range(GROWTHS + 1):
        side = 2 * half / FIRST_CUBES
        cubes = cell_centres(FIRST_CUBES, half)
        stays = _stays(cubes + centre, side, np.sqrt(3), views, distances, tolerance)
        if not stays.any():
            return None
        if np.abs(cubes[stays]).max() < half - side:
            return _refine(cubes[stays] + centre, side, views, distances, tolerance)
        half *= 2
    return None


def _first_box(views: MaskedViews) -> tuple[np.ndarray, float] | None:
    """Centre [3] and half the side of a box around the object; None if the rays to it are parallel.

    The centre is where the rays through the centroids of the masks meet; the size is that of the median mask.
    """
    outlines = [cv2.convexHull(cv2.findNonZero(mask))[:, 0] for mask in views.masks]
    middles = [np.mean(np.argwhere(mask), axis=0)[::-1] for mask in views.masks]
    matrices = list(zip(views.cameras.intrinsics, views.cameras.c2w, strict=True))
    rays = [pixels_to_rays(middle, *camera) for middle, camera in zip(middles, matrices, strict=True)]
    origins, directions = (np.stack(part) for part in zip(*rays, strict=True))
    centre = meeting_point(origins, directions)
    if centre is None:
        return None
    radii = []
    for outline, camera in zip(outlines, matrices, strict=True):
        origins, directions = pixels_to_rays(outline, *camera)
        radii.append(np.linalg.norm(np.cross(centre - origins, directions), axis=1).max())
    return centre, FIRST_BOX * float(np.median(radii))


def _refine(
    cubes: np.ndarray, side: float, views: MaskedViews, distances: list[np.ndarray], tolerance: float
) -> tuple[np.ndarray, float] | None:
    """Subdivide `cubes` [N, 3] until they are fine enough; a cube is kept while a part of it may be in the hull."""
    while np.ptp(cubes, axis=0).max() + side < FINEST_CUBES * side and 8 * len(cubes) <= MOST_CUBES:
        cubes = octants(cubes, side)
        side /= 2
        cubes = cubes[_stays(cubes, side, np.sqrt(3), views, distances, tolerance)]
        if not len(cubes):
            return None
    cubes = cubes[_stays(cubes, side, 1.0, views, distances, tolerance)]
    return (cubes, side) if len(cubes) else None


def _stays(
    cubes: np.ndarray,
    side: float,
    reach: float,
    views: MaskedViews,
    distances: list[np.ndarray],
    tolerance: float,
    quorum: float = 0.5,
) -> np.ndarray:
    """bool [N], which of `cubes` [N, 3] the vote keeps.

    A view accepts a cube if a mask pixel is within the projection of reach * side / 2 around its centre. With reach
    sqrt(3) every cube that intersects the hull is accepted. More than the fraction `quorum` of the views must show the
    cube.
    """
    alive = np.arange(len(cubes))  # cubes that the remaining votes could still keep
    n_views, off = np.zeros((2, len(cubes)), dtype=np.int32)  # views that show a cube, and those that reject it
    voting = zip(views.cameras.intrinsics, views.cameras.c2w, distances, strict=True)
    for number, (intrinsics, c2w, distance) in enumerate(voting):
        column, row, depth, inside = _land(cubes[alive], intrinsics, c2w, distance.shape)
        pixels = 0.5 * reach * side * max(intrinsics[0, 0], intrinsics[1, 1]) / depth
        n_views[alive[inside]] += 1
        off[alive[inside]] += distance[row, column] > pixels
        if number % 8 == 7:
            alive = alive[off[alive] <= tolerance * len(views.views)]
    return (n_views > quorum * len(views.views)) & (off <= tolerance * n_views)


def carve_unit_sphere(views: MaskedViews, cells: int, margin: float) -> np.ndarray:
    """The cells that may contain the object: bool [cells, cells, cells] by x, y, z over the cube [-1, 1]^3.

    A cell is kept if the masks, dilated by `margin` (frame units at the cell's distance), contain it, or if no view
    shows it. Masks that contradict the others do not vote. Cells outside the unit sphere are removed.
    """
    whole = visual_hull(views)
    if whole is not None:
        views = views.pick(whole.is_trusted)
    distances = _distances(views)
    count, side = cells, 2.0 / cells
    while count % 2 == 0 and count > COARSEST_CELLS:
        count, side = count // 2, side * 2
    cubes = cell_centres(count)
    while True:
        cubes = cubes[np.linalg.norm(cubes, axis=1) < 1 + np.sqrt(0.75) * side]
        reach = np.sqrt(3) + 2 * margin / side
        if distances:
            cubes = cubes[_stays(cubes, side, reach, views, distances, STRICT_TOLERANCE, quorum=-1.0)]
        if count == cells:
            break
        cubes = octants(cubes, side)
        count, side = count * 2, side / 2
    occupied = np.zeros((cells,) * 3, dtype=bool)
    occupied[tuple(np.floor((cubes + 1) / side).astype(int).T)] = np.linalg.norm(cubes, axis=1) < 1
    return occupied


def _land(
    points: np.ndarray, intrinsics: np.ndarray, c2w: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Column, row (int) and depth of the `points` [N, 3] that project into the image, and which those are, bool [N]."""
    to_camera = intrinsics @ c2w[:3, :3].T
    x, y, depth = to_camera @ points.T - (to_camera @ c2w[:3, 3])[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x, y = x / depth, y / depth
    height, width = shape
    inside = (depth > 0) & (x > -0.5) & (x < width - 0.5) & (y > -0.5) & (y < height - 0.5)
    column, row = (np.rint(value[inside]).astype(np.intp) for value in (x, y))
    return np.minimum(column, width - 1), np.minimum(row, height - 1), depth[inside], inside


def _agreements(cubes: np.ndarray, side: float, views: MaskedViews) -> np.ndarray:
    """[W], intersection over union of each mask and the silhouette of the cubes."""
    agreements = []
    for intrinsics, c2w, mask in zip(views.cameras.intrinsics, views.cameras.c2w, views.masks, strict=True):
        drawn = silhouette(cubes, side, intrinsics, c2w, mask.shape)
        agreements.append(np.sum(drawn & mask) / np.sum(drawn | mask))
    return np.array(agreements)


def silhouette(
    cubes: np.ndarray, side: float, intrinsics: np.ndarray, c2w: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """The silhouette of cubes (centres [N, 3]) in an image of `shape` (h, w): uint8, 1 inside; a square per cube."""
    drawn = np.zeros(shape, dtype=np.uint8)
    column, row, depth, _ = _land(cubes, intrinsics, c2w, shape)
    if not len(depth):
        return drawn
    drawn[row, column] = 1
    focal = np.diagonal(intrinsics)[:2]
    width, height = np.clip(np.ceil(side * focal / np.median(depth)), 1, max(shape)).astype(int) | 1
    return cv2.dilate(drawn, np.ones((height, width), dtype=np.uint8))
