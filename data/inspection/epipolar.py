"""Do the photographs bear out the cameras? How far what two of them both show lies off its epipolar lines.

SIFT features are matched between photographs, and wrong matches thrown out without using the cameras (a fundamental
matrix by RANSAC). What is left lies on the epipolar lines that the cameras predict, where these are right: to a third
of a pixel in real scenes, and many pixels off where cameras are shifted by one photograph, turned, mirrored or in
another convention. What the measure cannot see: a change that moves all cameras alike, and one scale of all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from data.cameras import spread
from data.capture import MASK_HALF, Lens
from data.io.images import eight_bits, size_within
from data.scenes.scene import Scene
from data.scenes.undistort import resized

LARGEST_SIDE = 640  # pixels: photographs are reduced to this; features of larger ones say the same more slowly
MOST_VIEWS = 100  # taking part, evenly chosen
NEIGHBOURS = 3  # of each view, by its camera; the next photograph comes beside them, whatever its camera
LEAST_BASELINE = 0.1  # of the median distance between cameras: nearer ones agree whatever they look at

MOST_FEATURES = 1000
CONTRAST = 0.015  # of SIFT's weakest feature; its default of 0.04 leaves half as many on smooth objects
RATIO = 0.75  # Lowe's ratio test (Lowe 2004, Distinctive image features, section 7.1)
RANSAC_PIXELS = 2.0
RANSAC_CONFIDENCE, RANSAC_ROUNDS = 0.999, 3000
LEAST_MATCHES = 16  # twice what a fundamental matrix is made from: it fits fewer whatever they are
LEAST_PAIRS = 0.05  # of the pairs must show something in common: fewer may be wrong matches
LEAST_INLIERS = 0.5  # of the matches: below it repeated patterns were taken for each other


@dataclass(frozen=True, eq=False)
class Camera:
    """Where a photograph was taken, and through which lens."""

    lens: Lens
    c2w: np.ndarray  # [4, 4]


@dataclass(frozen=True, eq=False)
class Features:
    """F places of a picture that can be found again."""

    pixels: np.ndarray  # [F, 2] float64
    descriptors: np.ndarray  # [F, 128] float32


@dataclass(frozen=True, eq=False)
class Match:
    """Two cameras and the pixels [M, 2] in the picture of each of what they both show."""

    first: Camera
    second: Camera
    pixels_1: np.ndarray
    pixels_2: np.ndarray


@dataclass(frozen=True)
class PairDistance:
    """Two views and the median distance of what both show from its epipolar lines, pixels of the reduced pictures."""

    first: int
    second: int
    pixels: float


def pair_distances(scene: Scene) -> tuple[list[PairDistance], list[tuple[int, int]]]:
    """The pairs of neighbouring views that show enough in common, and the pairs that were tried.

    Neighbours by their cameras, and by the order of their photographs: wrong cameras make neighbours of photographs
    that show nothing in common.
    """
    chosen = spread(scene.n_views, MOST_VIEWS)
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


def neighbour_pairs(c2w: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Each of V cameras [V, 4, 4] with the `count` nearest in place and direction, smaller number first, sorted.

    A baseline of nothing says nothing: those come last that are nearer than LEAST_BASELINE.
    """
    centres, forward = c2w[:, :3, 3], c2w[:, :3, 2]
    distance = np.linalg.norm(centres[:, None] - centres, axis=-1)
    usual = float(np.median(distance[~np.eye(len(c2w), dtype=bool)])) if len(c2w) > 1 else 0.0
    if usual == 0:
        return []
    cost = distance / usual + 2 * (1 - forward @ forward.T) + 10 * (distance < LEAST_BASELINE * usual)
    np.fill_diagonal(cost, np.inf)
    nearest = np.argsort(cost, axis=1)[:, : min(count, len(c2w) - 1)]
    return sorted({(min(i, int(j)), max(i, int(j))) for i, others in enumerate(nearest) for j in others})


def find_features(grey: np.ndarray, mask: np.ndarray | None = None, most: int = MOST_FEATURES) -> Features:
    """The features of a picture, uint8 [H, W], where `mask` (uint8 [H, W], above 0 there) allows them."""
    # The precise upscaling keeps SIFT from being a quarter of a pixel off.
    detector = cv2.SIFT_create(most, contrastThreshold=CONTRAST, enable_precise_upscale=True)
    points, descriptors = detector.detectAndCompute(grey, mask)
    pixels = np.array([point.pt for point in points], dtype=np.float64).reshape(-1, 2)
    return Features(pixels, np.zeros((0, 128), np.float32) if descriptors is None else descriptors)


def match_features(first: Camera, features_1: Features, second: Camera, features_2: Features) -> Match | None:
    """What two pictures both show; None where that is too little to tell right from wrong."""
    if min(len(features_1.pixels), len(features_2.pixels)) < LEAST_MATCHES:
        return None
    candidates = cv2.BFMatcher().knnMatch(features_1.descriptors, features_2.descriptors, k=2)
    good = [best for best, other in candidates if best.distance < RATIO * other.distance]
    if len(good) < LEAST_MATCHES:
        return None
    pixels_1 = features_1.pixels[[match.queryIdx for match in good]]
    pixels_2 = features_2.pixels[[match.trainIdx for match in good]]
    # In pixels of a lens without distortion, so that one fundamental matrix fits the whole picture.
    flat = [
        (normalised(camera.lens, pixels) @ camera.lens.intrinsics.T)[:, :2]
        for camera, pixels in ((first, pixels_1), (second, pixels_2))
    ]
    inlier = _consistent(*flat)
    if inlier is None or inlier.sum() < max(LEAST_MATCHES, LEAST_INLIERS * len(good)):
        return None
    return Match(first, second, pixels_1[inlier], pixels_2[inlier])


def normalised(lens: Lens, pixels: np.ndarray) -> np.ndarray:
    """Homogeneous camera coordinates [M, 3] of pixels [M, 2], distortion taken off."""
    if not (lens.is_fisheye or any(lens.distortion)):
        return np.concatenate([pixels, np.ones((len(pixels), 1))], axis=1) @ np.linalg.inv(lens.intrinsics).T
    undistort = cv2.fisheye.undistortPoints if lens.is_fisheye else cv2.undistortPoints
    distortion = np.array(lens.distortion or (0.0,) * 4)
    straightened = undistort(np.float64(pixels).reshape(-1, 1, 2), lens.intrinsics, distortion).reshape(-1, 2)
    return np.concatenate([straightened, np.ones((len(straightened), 1))], axis=1)


def epipolar_distances(match: Match) -> np.ndarray:
    """Signed distance [M] in pixels to the epipolar lines: the mean of both pictures' (H&Z, section 11.4.3)."""
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


def _consistent(pixels_1: np.ndarray, pixels_2: np.ndarray) -> np.ndarray | None:
    """Which matches [M] bool one fundamental matrix explains; None where none is found."""
    try:
        inlier = cv2.findFundamentalMat(
            pixels_1, pixels_2, cv2.USAC_MAGSAC, RANSAC_PIXELS, RANSAC_CONFIDENCE, RANSAC_ROUNDS
        )[1]
    except cv2.error:  # places that are not finite, or all on one spot
        return None
    return None if inlier is None else inlier.ravel().astype(bool)


def _view(scene: Scene, view: int) -> tuple[Camera, Features]:
    """A view's camera and features, its picture reduced; features of the object alone where there are masks."""
    image, size = scene.images[view], scene.size(view)
    small, scale = size_within(size, LARGEST_SIDE)
    mask = None if scene.masks is None else np.where(scene.masks[view] > MASK_HALF, np.uint8(255), np.uint8(0))
    if scale < 1:
        image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        mask = None if mask is None else cv2.resize(mask, small, interpolation=cv2.INTER_NEAREST)
    grey = cv2.cvtColor(eight_bits(image), cv2.COLOR_RGB2GRAY)
    camera = Camera(Lens(resized(scene.intrinsics[view], size, small)), scene.c2w[view])
    return camera, find_features(grey, mask)
