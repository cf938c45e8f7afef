"""Verification of the cameras by the epipolar distances of matched features.

SIFT features are matched between images, and outliers are removed without using the cameras (a fundamental matrix by
RANSAC). For correct cameras the matches are on the predicted epipolar lines, to a third of a pixel in real scenes. They
are many pixels off if the cameras are shifted by one image, rotated, mirrored or in another convention. A similarity
of all cameras cannot be detected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.io.images import eight_bits, size_within
from data.parsed_scene import MASK_HALF, Lens
from data.prepare.features import Camera, Features, Match, find_features, match_features, neighbour_pairs, normalised
from data.scenes.scene import Scene
from data.scenes.undistort import resized

LARGEST_SIDE = 640  # pixels; images are reduced to this size, which is accurate enough
MOST_VIEWS = 100  # evenly chosen
NEIGHBOURS = 3  # matched views for each view, by camera; the next image in order is matched too

LEAST_PAIRS = 0.05  # of the pairs must have matches; fewer may be wrong matches

# The results of `pair_distances`: `inspect` and `evaluate` need them, and matching takes seconds.
_MEASURED: WeakKeyDictionary[Scene, tuple[list[PairDistance], list[tuple[int, int]]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class PairDistance:
    """Two views and the median epipolar distance of their matches, pixels of the reduced images."""

    first: int
    second: int
    pixels: float


def pair_distances(scene: Scene) -> tuple[list[PairDistance], list[tuple[int, int]]]:
    """The pairs of neighbouring views with enough matches, and all pairs that were tried.

    Neighbours by camera and by the order of the images: wrong cameras may be next to each other although their images
    show different things. Of the same scene they are measured once.
    """
    if scene not in _MEASURED:
        _MEASURED[scene] = _measured(scene)
    return _MEASURED[scene]


def _measured(scene: Scene) -> tuple[list[PairDistance], list[tuple[int, int]]]:
    """`pair_distances`, without those measured earlier."""
    chosen = evenly_spaced(scene.n_views, MOST_VIEWS)
    beside = {(index, index + 1) for index in range(len(chosen) - 1)}
    pairs = sorted(beside | set(neighbour_pairs(scene.c2w[chosen], NEIGHBOURS)))
    seen = [_view(scene, int(view)) for view in chosen] if pairs else []
    found = []
    for i, j in pairs:
        match = match_features(*seen[i], *seen[j])
        if match is None:
            continue
        with np.errstate(all="ignore"):  # without a baseline the epipolar lines are NaN
            pixels = float(np.median(np.abs(epipolar_distances(match))))
        if np.isfinite(pixels):
            found.append(PairDistance(int(chosen[i]), int(chosen[j]), pixels))
    return found, [(int(chosen[i]), int(chosen[j])) for i, j in pairs]


def median_distance(pairs: Sequence[PairDistance], tried: Sequence[tuple[int, int]]) -> float | None:
    """The median of the pairs' distances, pixels; None if too few of the tried pairs have matches."""
    return float(np.median([pair.pixels for pair in pairs])) if len(pairs) > LEAST_PAIRS * len(tried) else None


def epipolar_distances(match: Match) -> np.ndarray:
    """Signed distances [M] to the epipolar lines, pixels: the mean of both images (H&Z, section 11.4.3)."""
    second_from_first = np.linalg.inv(match.second.c2w) @ match.first.c2w
    x, y, z = second_from_first[:3, 3]
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ second_from_first[:3, :3]
    rays_1, rays_2 = normalised(match.first.lens, match.pixels_1), normalised(match.second.lens, match.pixels_2)
    lines_2, lines_1 = rays_1 @ essential.T, rays_2 @ essential
    product = np.sum(lines_2 * rays_2, axis=1)
    focal_1, focal_2 = (np.sqrt(np.linalg.det(camera.lens.intrinsics)) for camera in (match.first, match.second))
    lengths_1, lengths_2 = (np.linalg.norm(lines[:, :2], axis=1) for lines in (lines_1, lines_2))
    return 0.5 * (focal_1 * product / lengths_1 + focal_2 * product / lengths_2)


def worst_views(pairs: Sequence[PairDistance], limit: float) -> np.ndarray:
    """The views with most of their pairs beyond `limit` pixels, the worst first."""
    own: dict[int, list[float]] = {}
    for pair in pairs:
        for view in (pair.first, pair.second):
            own.setdefault(view, []).append(pair.pixels)
    middle = {view: sorted(pixels)[(len(pixels) - 1) // 2] for view, pixels in own.items()}
    return np.array(sorted((view for view in middle if middle[view] > limit), key=lambda view: -middle[view]), int)


def lone_views(pairs: Sequence[PairDistance], tried: Sequence[tuple[int, int]]) -> np.ndarray:
    """The indices of views that have no matches, although their neighbours have; ascending.

    A view is included if it has no matches with any neighbour, and each of its neighbours has matches with most of its
    own. Views with a single neighbour are ignored.
    """
    found = {(pair.first, pair.second) for pair in pairs}
    beside: dict[int, list[int]] = {}
    for first, second in tried:
        beside.setdefault(first, []).append(second)
        beside.setdefault(second, []).append(first)
    share = {
        view: [(min(view, other), max(view, other)) in found for other in others] for view, others in beside.items()
    }
    lone = {view for view, others in beside.items() if len(others) > 1 and not any(share[view])}

    def is_matched(view: int) -> bool:
        """Whether `view` has matches with most of its neighbours that are not lone."""
        own = [is_found for other, is_found in zip(beside[view], share[view], strict=True) if other not in lone]
        return sum(own) > len(own) / 2

    return np.array(sorted(view for view in lone if all(map(is_matched, beside[view]))), int)


def _view(scene: Scene, view: int) -> tuple[Camera, Features]:
    """Camera and features of a view's reduced image; only features inside the mask, if there is one."""
    image, size = scene.images[view], scene.size(view)
    small, scale = size_within(size, LARGEST_SIDE)
    mask = None if scene.masks is None else np.where(scene.masks[view] > MASK_HALF, np.uint8(255), np.uint8(0))
    if scale < 1:
        image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        mask = None if mask is None else cv2.resize(mask, small, interpolation=cv2.INTER_NEAREST)
    grey = cv2.cvtColor(eight_bits(image), cv2.COLOR_RGB2GRAY)
    camera = Camera(Lens(resized(scene.intrinsics[view], size, small)), scene.c2w[view])
    return camera, find_features(grey, mask)
