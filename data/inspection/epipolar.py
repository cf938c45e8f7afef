"""Do the images bear out the cameras? How far what two of them both show lies off its epipolar lines.

SIFT features are matched between images, and wrong matches thrown out without using the cameras (a fundamental
matrix by RANSAC). What is left lies on the epipolar lines that the cameras predict, where these are right: to a third
of a pixel in real scenes, and many pixels off where cameras are shifted by one image, turned, mirrored or in
another convention. What the measure cannot see: a change that moves all cameras alike, and one scale of all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.io.images import eight_bits, size_within
from data.parsed_scene import MASK_HALF, Lens
from data.scenes.features import Camera, Features, Match, find_features, match_features, neighbour_pairs, normalised
from data.scenes.scene import Scene
from data.scenes.undistort import resized

LARGEST_SIDE = 640  # pixels: images are reduced to this; features of larger ones say the same more slowly
MOST_VIEWS = 100  # taking part, evenly chosen
NEIGHBOURS = 3  # of each view, by its camera; the next image comes beside them, whatever its camera

LEAST_PAIRS = 0.05  # of the pairs must show something in common: fewer may be wrong matches


@dataclass(frozen=True)
class PairDistance:
    """Two views and the median distance of what both show from its epipolar lines, pixels of the reduced images."""

    first: int
    second: int
    pixels: float


def pair_distances(scene: Scene) -> tuple[list[PairDistance], list[tuple[int, int]]]:
    """The pairs of neighbouring views that show enough in common, and the pairs that were tried.

    Neighbours by their cameras, and by the order of their images: wrong cameras make neighbours of images
    that show nothing in common.
    """
    chosen = evenly_spaced(scene.n_views, MOST_VIEWS)
    beside = {(index, index + 1) for index in range(len(chosen) - 1)}
    pairs = sorted(beside | set(neighbour_pairs(scene.c2w[chosen], NEIGHBOURS)))
    seen = [_view(scene, int(view)) for view in chosen] if pairs else []
    found = []
    for i, j in pairs:
        match = match_features(*seen[i], *seen[j])
        if match is None:
            continue
        with np.errstate(all="ignore"):  # no baseline: no line, NaN
            pixels = float(np.median(np.abs(epipolar_distances(match))))
        if np.isfinite(pixels):
            found.append(PairDistance(int(chosen[i]), int(chosen[j]), pixels))
    return found, [(int(chosen[i]), int(chosen[j])) for i, j in pairs]


def median_distance(pairs: Sequence[PairDistance], tried: Sequence[tuple[int, int]]) -> float | None:
    """The median of the pairs' distances, pixels; None where too few of those tried are among them."""
    return float(np.median([pair.pixels for pair in pairs])) if len(pairs) > LEAST_PAIRS * len(tried) else None


def epipolar_distances(match: Match) -> np.ndarray:
    """Signed distance [M] in pixels to the epipolar lines: the mean of both images' (H&Z, section 11.4.3)."""
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
    """The views most of whose pairs are beyond `limit` pixels, the worst first; a view's other half is not its own."""
    own: dict[int, list[float]] = {}
    for pair in pairs:
        for view in (pair.first, pair.second):
            own.setdefault(view, []).append(pair.pixels)
    middle = {view: sorted(pixels)[(len(pixels) - 1) // 2] for view, pixels in own.items()}
    return np.array(sorted((view for view in middle if middle[view] > limit), key=lambda view: -middle[view]), int)


def lone_views(pairs: Sequence[PairDistance], tried: Sequence[tuple[int, int]]) -> np.ndarray:
    """The views that show nothing in common with any neighbour, though these do with most of theirs, in order.

    A view that only one other was held against says nothing.
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
        """With most of the views that are not lone themselves."""
        own = [is_found for other, is_found in zip(beside[view], share[view], strict=True) if other not in lone]
        return sum(own) > len(own) / 2

    return np.array(sorted(view for view in lone if all(map(is_matched, beside[view]))), int)


def _view(scene: Scene, view: int) -> tuple[Camera, Features]:
    """A view's camera and features, its image reduced; features of the object alone where there are masks."""
    image, size = scene.images[view], scene.size(view)
    small, scale = size_within(size, LARGEST_SIDE)
    mask = None if scene.masks is None else np.where(scene.masks[view] > MASK_HALF, np.uint8(255), np.uint8(0))
    if scale < 1:
        image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        mask = None if mask is None else cv2.resize(mask, small, interpolation=cv2.INTER_NEAREST)
    grey = cv2.cvtColor(eight_bits(image), cv2.COLOR_RGB2GRAY)
    camera = Camera(Lens(resized(scene.intrinsics[view], size, small)), scene.c2w[view])
    return camera, find_features(grey, mask)
