"""The colours of points on a surface, blended from the photographs that see them. P points, V views.

A photograph counts by the angle that it sees a point at and by how many of its pixels there are to the surface there.
What one says against most others (a highlight, a passer-by, an edge that another object is seen beyond) is left out.
Most is by number: the photographs that see a point best are near each other, and often in one light of their own. On
49 photographs of a skull, with shadows that move, that is worth 3 dB in the views held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from data.io.images import sample_bilinear
from models.surface.visibility import Camera, Visibility, project

GRAZING = 0.15  # cosine: a surface seen more edge-on than 81 degrees shows a smear of its neighbourhood
SHARPNESS = 1  # of the cosine, so that pixels count; higher powers leave a few photographs and their light
WITHIN_MASK = 0.99  # a pixel with any background in it has a wrong colour
ROUNDS = 10  # towards the colour that most photographs agree on
SOFTEST = 0.02  # of the range of colours: agreement finer than this tells nothing
OUTLIER = 0.12  # of the range, in any channel, from what most say: less is shading, more is something else
POINTS = 2**16  # coloured at a time: V photographs of each are kept at once

Fallback = Callable[[np.ndarray, np.ndarray], np.ndarray]  # points, normals float32 [P, 3] -> RGB [P, 3] in [0, 1]


@dataclass(frozen=True)
class Photographs:
    """What colours come from."""

    cameras: Sequence[Camera]
    images: Sequence[np.ndarray]  # V of [H, W, 3], unsigned integers, RGB
    masks: Sequence[np.ndarray] | None  # V of uint8 [H, W]


@dataclass(frozen=True)
class Painted:
    """Colours of points, and where they are from."""

    rgb: np.ndarray  # float32 [P, 3] in [0, 1]
    seen: float  # share of the points that some photograph shows


def paint(
    points: np.ndarray,
    normals: np.ndarray,
    photographs: Photographs,
    visibility: Visibility,
    fallback: Fallback | None,
    progress: Callable[[Iterable], Iterable],
) -> Painted:
    """Colours of points [P, 3] with outward unit normals, from the photographs, elsewhere from `fallback`.

    Without a fallback what no photograph shows gets the mean of what they show.
    """
    rgb, seen = np.zeros((len(points), 3), np.float32), np.zeros(len(points), bool)
    for start in progress(range(0, len(points), POINTS)):
        part = slice(start, start + POINTS)
        colors, weights = gather(points[part], normals[part], photographs, visibility)
        rgb[part], seen[part] = blend(colors, weights), weights.max(axis=0, initial=0.0) > 0
    dark = np.flatnonzero(~seen)
    if len(dark) and fallback is not None:
        for start in range(0, len(dark), POINTS):
            rows = dark[start : start + POINTS]
            rgb[rows] = fallback(points[rows].astype(np.float32), normals[rows].astype(np.float32))
    elif len(dark):
        rgb[dark] = rgb[seen].mean(axis=0) if seen.any() else 0.5
    return Painted(np.clip(rgb, 0.0, 1.0), float(seen.mean()) if len(seen) else 0.0)


def gather(
    points: np.ndarray, normals: np.ndarray, photographs: Photographs, visibility: Visibility
) -> tuple[np.ndarray, np.ndarray]:
    """What each photograph shows of each point: colours float32 [V, P, 3] and weights float32 [V, P], 0 if hidden."""
    views = len(photographs.cameras)
    colors = np.zeros((views, len(points), 3), np.float32)
    weights = np.zeros((views, len(points)), np.float32)
    for view, camera in enumerate(photographs.cameras):
        pixels, depth = project(points, camera)
        towards = camera.center - points
        cosine = np.sum(towards * normals, axis=1) / np.maximum(np.linalg.norm(towards, axis=1), 1e-12)
        rows = np.flatnonzero(camera.shows(pixels, depth) & (cosine > GRAZING))
        if photographs.masks is not None:
            rows = rows[sample_bilinear(photographs.masks[view], pixels[rows]) >= WITHIN_MASK]
        rows = rows[visibility.sees(points[rows], normals[rows], camera.center)]
        colors[view, rows] = sample_bilinear(photographs.images[view], pixels[rows])
        fine = camera.intrinsics[0, 0] * camera.intrinsics[1, 1] / depth[rows] ** 2  # pixels to a unit of surface
        weights[view, rows] = cosine[rows] ** SHARPNESS * fine
    return colors, weights / max(float(weights.max(initial=0.0)), 1e-30)


def blend(colors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """One colour [P, 3] of those [V, P, 3] that photographs show, by weights [V, P]; those that stand out are out.

    First the colour from which the distances are least (Weiszfeld's method for the geometric median), every photograph
    with one vote; then the weighted mean of all that lie about it. Nothing is left out where nothing lies there.
    """
    votes = (weights > 0).astype(np.float32)
    middle = _mean(colors, votes)
    for _ in range(ROUNDS):
        away = np.linalg.norm(colors - middle, axis=2)
        middle = _mean(colors, votes / np.maximum(away, SOFTEST))
    agreeing = weights * (np.abs(colors - middle).max(axis=2) <= OUTLIER)
    return np.where((agreeing.sum(axis=0) > 0)[:, None], _mean(colors, agreeing), middle)


def _mean(colors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted mean over the views, [P, 3]; 0 where nothing weighs."""
    total = weights.sum(axis=0)
    return np.einsum("vpc,vp->pc", colors, weights) / np.maximum(total, 1e-30)[:, None]
