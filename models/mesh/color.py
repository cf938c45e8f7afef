"""Colours of surface points, blended from the photographs that see them. P points, V views.

A photograph is weighted by the viewing angle and by its number of pixels per unit of surface. Colours that differ from
the majority (highlights, moving objects, edges of other objects) are excluded. The majority is unweighted: the
photographs with the largest weights are close to each other and often have the same lighting. On 49 photographs of a
skull with moving shadows, this improves held-out views by 3 dB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from data.pixels import sample_bilinear
from data.rays import PinholeCamera
from models.mesh.visibility import Visibility, dots, lengths

GRAZING_COSINE = 0.15  # cosine: at more than 81 degrees a pixel covers too much of the surface
COSINE_POWER = 1  # power of the cosine, so that the number of pixels counts; higher powers leave only a few photographs
WITHIN_MASK = 0.99  # pixels that contain any background have a wrong colour
MEDIAN_ROUNDS = 10  # iterations of the geometric median
SOFTEST = 0.02  # of the range of colours: convergence threshold
# of the range, in any channel, from the median: smaller differences are shading, larger ones other objects
OUTLIER_COLOUR = 0.12
LEAST_VERTEX_WEIGHT = (
    1e-6  # of the colour of the vertices beside the photographs: alone where no photograph has a weight
)
POINTS_AT_ONCE = 2**16  # points at a time: V colours of each are in memory
BLENDED_AT_ONCE = 2**12  # and in the cache of the processor

Fallback = Callable[[np.ndarray, np.ndarray], np.ndarray]  # points, normals float32 [P, 3] -> RGB [P, 3] in [0, 1]


@dataclass(frozen=True)
class Photographs:
    """The images that colours are sampled from."""

    cameras: Sequence[PinholeCamera]
    images: Sequence[np.ndarray]  # V of [H, W, 3], unsigned integers, RGB
    masks: Sequence[np.ndarray] | None  # V of uint8 [H, W]


@dataclass(frozen=True)
class Corners:
    """Points [P] in triangles."""

    index: np.ndarray  # [P, 3] of the vertices
    share: np.ndarray  # float32 [P, 3] barycentric coordinates

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Values of vertices [N, ...], interpolated: [P, ...]."""
        return np.einsum("pk,pk...->p...", self.share, values[self.index])


@dataclass(frozen=True)
class Painted:
    """Colours of points, and their source."""

    rgb: np.ndarray  # float32 [P, 3] in [0, 1]
    seen: float  # fraction of the points that some photograph sees
    weights: np.ndarray  # float32 [V, P] of the photographs, 0 for outliers; V is 0 if they are not kept


def paint(
    points: np.ndarray,
    normals: np.ndarray,
    photographs: Photographs,
    visibility: Visibility,
    fallback: Fallback | None,
    progress: Callable[[Iterable], Iterable],
    is_weighted: bool = False,
) -> Painted:
    """Colours of points [P, 3] with outward unit normals from the photographs, and from `fallback` elsewhere.

    Without a fallback, unseen points get the mean colour of the seen ones. `is_weighted`: also return the weights.
    """
    rgb, is_seen = np.zeros((len(points), 3), np.float32), np.zeros(len(points), bool)
    all_weights = np.zeros((len(photographs.cameras) if is_weighted else 0, len(points)), np.float32)
    for start in progress(range(0, len(points), POINTS_AT_ONCE)):
        part = slice(start, start + POINTS_AT_ONCE)
        samples = gather(points[part], normals[part], photographs, visibility)
        for few in range(0, len(samples.count), BLENDED_AT_ONCE):
            some = slice(few, few + BLENDED_AT_ONCE)
            used = (slice(0, samples.count[some].max()), some)
            rgb[part][some], agreeing = blend(samples.colors[used], samples.weights[used])
            if is_weighted:
                rows, columns = np.nonzero(agreeing)
                all_weights[samples.views[used][rows, columns], start + few + columns] = agreeing[rows, columns]
        is_seen[part] = samples.count > 0
    unseen = np.flatnonzero(~is_seen)
    if len(unseen) and fallback is not None:
        for start in range(0, len(unseen), POINTS_AT_ONCE):
            rows = unseen[start : start + POINTS_AT_ONCE]
            rgb[rows] = fallback(points[rows].astype(np.float32), normals[rows].astype(np.float32))
    elif len(unseen):
        rgb[unseen] = rgb[is_seen].mean(axis=0) if is_seen.any() else 0.5
    return Painted(np.clip(rgb, 0.0, 1.0), float(is_seen.mean()) if len(is_seen) else 0.0, all_weights)


@dataclass(frozen=True)
class Samples:
    """What photographs show of points: one after the other, those that see a point, and zeros after these."""

    count: np.ndarray  # int [P], photographs that see each point
    colors: np.ndarray  # float32 [V, P, 3]
    weights: np.ndarray  # float32 [V, P]
    views: np.ndarray  # int16 [V, P]


def gather(points: np.ndarray, normals: np.ndarray, photographs: Photographs, visibility: Visibility) -> Samples:
    """The samples of points [P, 3] with outward unit normals."""
    shape = len(photographs.cameras), len(points)
    count, views = np.zeros(len(points), int), np.zeros(shape, np.int16)
    colors, weights = np.zeros((*shape, 3), np.float32), np.zeros(shape, np.float32)
    heights = dots(points, normals)
    for view, camera in enumerate(photographs.cameras):
        above = normals @ camera.center - heights
        rows = np.flatnonzero(above > 0)
        places = points.take(rows, axis=0)
        cosine = above[rows] / np.maximum(lengths(camera.center - places), 1e-12)
        pixels, depth = camera.project(places)
        kept = np.flatnonzero(camera.shows(pixels, depth) & (cosine > GRAZING_COSINE))
        if photographs.masks is not None:
            kept = kept[sample_bilinear(photographs.masks[view], pixels.take(kept, axis=0)) >= WITHIN_MASK]
        towards = normals.take(rows[kept], axis=0)
        kept = kept[visibility.sees(places.take(kept, axis=0), towards, camera.center)]
        rows = rows[kept]
        fine = camera.intrinsics[0, 0] * camera.intrinsics[1, 1] / depth[kept] ** 2  # pixels per unit of surface
        place = count[rows] * len(points) + rows
        colors.reshape(-1, 3)[place] = sample_bilinear(photographs.images[view], pixels.take(kept, axis=0))
        weights.reshape(-1)[place], views.reshape(-1)[place] = cosine[kept] ** COSINE_POWER * fine, view
        count[rows] += 1
    return Samples(count, colors, weights / max(float(weights.max(initial=0.0)), 1e-30), views)


def blend(colors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One colour [P, 3] from samples [V, P, 3] and weights [V, P], and the weights without those of outliers.

    The unweighted geometric median (Weiszfeld's method), then the weighted mean of the samples near it; of all samples
    if none is near it.
    """
    channels, votes = np.ascontiguousarray(colors.transpose(2, 0, 1)), (weights > 0).astype(np.float32)
    middle = _mean(channels, votes)
    for _ in range(MEDIAN_ROUNDS):
        red, green, blue = channels - middle[:, None]
        away = np.sqrt(red * red + green * green + blue * blue)
        middle = _mean(channels, votes / np.maximum(away, SOFTEST))
    agreeing = weights * (np.abs(channels - middle[:, None]).max(axis=0) <= OUTLIER_COLOUR)
    return np.where(agreeing.sum(axis=0) > 0, _mean(channels, agreeing), middle).T, agreeing


def between(points: np.ndarray, corners: Corners, painted: Painted, photographs: Photographs) -> np.ndarray:
    """Colours [P, 3] of points [P, 3] in triangles whose vertices are painted, with interpolated weights.

    Which photographs see a point and agree is thus decided at the vertices only. Points without a weight get the
    interpolated colour of the vertices.
    """
    total, rgb = np.zeros(len(points), np.float32), corners.mean(painted.rgb) * LEAST_VERTEX_WEIGHT
    total += LEAST_VERTEX_WEIGHT
    for weights, camera, image in zip(painted.weights, photographs.cameras, photographs.images, strict=True):
        weight = corners.mean(weights)
        rows = np.flatnonzero(weight)
        rgb[rows] += weight[rows, None] * sample_bilinear(image, camera.project(points[rows])[0])
        total += weight
    return rgb / total[:, None]


def _mean(channels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted mean over the views of [3, V, P], [3, P]; 0 if all weights are 0."""
    return np.einsum("cvp,vp->cp", channels, weights) / np.maximum(weights.sum(axis=0), 1e-30)
