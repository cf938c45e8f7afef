"""What images have in common: SIFT features, matched without using the cameras."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from data.parsed_scene import Lens

LEAST_BASELINE = 0.1  # of the median distance between cameras: nearer ones agree whatever they look at
MOST_FEATURES = 1000
CONTRAST = 0.015  # of SIFT's weakest feature; its default of 0.04 leaves half as many on smooth objects
RATIO = 0.75  # Lowe's ratio test (Lowe 2004, Distinctive image features, section 7.1)
RANSAC_PIXELS = 2.0
RANSAC_CONFIDENCE, RANSAC_ROUNDS = 0.999, 3000
LEAST_MATCHES = 16  # twice what a fundamental matrix is made from: it fits fewer whatever they are
LEAST_INLIERS = 0.5  # of the matches: below it repeated patterns were taken for each other


@dataclass(frozen=True, eq=False)
class Camera:
    """Where an image was taken, and through which lens."""

    lens: Lens
    c2w: np.ndarray  # [4, 4]


@dataclass(frozen=True, eq=False)
class Features:
    """F places of an image that can be found again."""

    pixels: np.ndarray  # [F, 2] float64
    descriptors: np.ndarray  # [F, 128] float32


@dataclass(frozen=True, eq=False)
class Match:
    """Two cameras and the pixels [M, 2] in the image of each of what they both show."""

    first: Camera
    second: Camera
    pixels_1: np.ndarray
    pixels_2: np.ndarray
    rows: np.ndarray | None = None  # int [M, 2], which features of the two they are


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
    """The features of an image, uint8 [H, W], where `mask` (uint8 [H, W], above 0 there) allows them."""
    # The precise upscaling keeps SIFT from being a quarter of a pixel off.
    detector = cv2.SIFT_create(most, contrastThreshold=CONTRAST, enable_precise_upscale=True)
    points, descriptors = detector.detectAndCompute(grey, mask)
    pixels = np.array([point.pt for point in points], dtype=np.float64).reshape(-1, 2)
    return Features(pixels, np.zeros((0, 128), np.float32) if descriptors is None else descriptors)


def match_features(first: Camera, features_1: Features, second: Camera, features_2: Features) -> Match | None:
    """What two images both show; None where that is too little to tell right from wrong."""
    if min(len(features_1.pixels), len(features_2.pixels)) < LEAST_MATCHES:
        return None
    candidates = cv2.BFMatcher().knnMatch(features_1.descriptors, features_2.descriptors, k=2)
    good = [best for best, other in candidates if best.distance < RATIO * other.distance]
    if len(good) < LEAST_MATCHES:
        return None
    pixels_1 = features_1.pixels[[match.queryIdx for match in good]]
    pixels_2 = features_2.pixels[[match.trainIdx for match in good]]
    # In pixels of a lens without distortion, so that one fundamental matrix fits the whole image.
    flat = [
        (normalised(camera.lens, pixels) @ camera.lens.intrinsics.T)[:, :2]
        for camera, pixels in ((first, pixels_1), (second, pixels_2))
    ]
    inlier = _consistent(*flat)
    if inlier is None or inlier.sum() < max(LEAST_MATCHES, LEAST_INLIERS * len(good)):
        return None
    rows = np.array([(match.queryIdx, match.trainIdx) for match in good])[inlier]
    return Match(first, second, pixels_1[inlier], pixels_2[inlier], rows)


def normalised(lens: Lens, pixels: np.ndarray) -> np.ndarray:
    """Homogeneous camera coordinates [M, 3] of pixels [M, 2], distortion taken off."""
    if not (lens.is_fisheye or any(lens.distortion)):
        return np.concatenate([pixels, np.ones((len(pixels), 1))], axis=1) @ np.linalg.inv(lens.intrinsics).T
    undistort = cv2.fisheye.undistortPoints if lens.is_fisheye else cv2.undistortPoints
    distortion = np.array(lens.distortion or (0.0,) * 4)
    straightened = undistort(np.float64(pixels).reshape(-1, 1, 2), lens.intrinsics, distortion).reshape(-1, 2)
    return np.concatenate([straightened, np.ones((len(straightened), 1))], axis=1)


def _consistent(pixels_1: np.ndarray, pixels_2: np.ndarray) -> np.ndarray | None:
    """Which matches [M] bool one fundamental matrix explains; None where none is found."""
    try:
        inlier = cv2.findFundamentalMat(
            pixels_1, pixels_2, cv2.USAC_MAGSAC, RANSAC_PIXELS, RANSAC_CONFIDENCE, RANSAC_ROUNDS
        )[1]
    except cv2.error:  # places that are not finite, or all on one spot
        return None
    return None if inlier is None else inlier.ravel().astype(bool)
