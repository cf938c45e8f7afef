"""SIFT features of images, matched without using the cameras."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from data.cameras import PIXEL_CENTRE
from data.parsed_scene import Lens
from data.scenes.undistort import colmap_camera

LEAST_BASELINE = 0.1  # of the median camera distance; pairs with a shorter baseline do not constrain the geometry
MOST_FEATURES = 1000
CONTRAST = 0.015  # SIFT's contrast threshold; the default of 0.04 finds half as many features on smooth objects
RATIO = 0.75  # Lowe's ratio test (Lowe 2004, Distinctive image features, section 7.1)
RANSAC_PIXELS = 2.0
RANSAC_CONFIDENCE, RANSAC_ROUNDS = 0.999, 3000
LEAST_MATCHES = 16  # twice the minimal set of a fundamental matrix, which fits any smaller set
LEAST_INLIERS = 0.5  # of the matches; fewer inliers indicate matches between repeated patterns


@dataclass(frozen=True, eq=False)
class Camera:
    """Pose and lens of an image."""

    lens: Lens
    c2w: np.ndarray  # [4, 4]


@dataclass(frozen=True, eq=False)
class Features:
    """F keypoints of an image with their descriptors."""

    pixels: np.ndarray  # [F, 2] float64
    descriptors: np.ndarray  # [F, 128] float32


@dataclass(frozen=True, eq=False)
class Match:
    """M matched keypoints of two cameras, as pixels [M, 2] in each image."""

    first: Camera
    second: Camera
    pixels_1: np.ndarray
    pixels_2: np.ndarray
    rows: np.ndarray  # int [M, 2], their indices among the features of the two images


def neighbour_pairs(c2w: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Pairs (i, j), i < j, of each of V cameras [V, 4, 4] with its `count` nearest in position and direction, sorted.

    Cameras nearer than LEAST_BASELINE are taken last: a pair without a baseline does not constrain the geometry.
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
    """The features of a grey image, uint8 [H, W], inside `mask` (uint8 [H, W], above 0 inside)."""
    # Without precise upscaling SIFT's keypoints are off by a quarter of a pixel.
    detector = cv2.SIFT.create(most, contrastThreshold=CONTRAST, enable_precise_upscale=True)
    points, descriptors = detector.detectAndCompute(grey, mask)  # type: ignore[arg-type]  # None is no mask
    pixels = np.array([point.pt for point in points], dtype=np.float64).reshape(-1, 2)
    return Features(pixels, np.zeros((0, 128), np.float32) if descriptors is None else descriptors)


def match_features(first: Camera, features_1: Features, second: Camera, features_2: Features) -> Match | None:
    """The verified matches of two images; None if there are too few."""
    if min(len(features_1.pixels), len(features_2.pixels)) < LEAST_MATCHES:
        return None
    candidates = cv2.BFMatcher().knnMatch(features_1.descriptors, features_2.descriptors, k=2)
    good = [best for best, other in candidates if best.distance < RATIO * other.distance]
    if len(good) < LEAST_MATCHES:
        return None
    pixels_1 = features_1.pixels[[match.queryIdx for match in good]]
    pixels_2 = features_2.pixels[[match.trainIdx for match in good]]
    # Undistorted pixels, so that one fundamental matrix fits the whole image.
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
    """Undistorted homogeneous camera coordinates [M, 3] of pixels [M, 2]."""
    if lens.colmap_model:
        flat = np.asarray(colmap_camera(lens, lens.intrinsics).cam_from_img(np.float64(pixels) + PIXEL_CENTRE))
        return np.concatenate([flat, np.ones((len(flat), 1))], axis=1)
    if not (lens.is_fisheye or any(lens.distortion)):
        return np.concatenate([pixels, np.ones((len(pixels), 1))], axis=1) @ np.linalg.inv(lens.intrinsics).T
    undistort = cv2.fisheye.undistortPoints if lens.is_fisheye else cv2.undistortPoints
    distortion = np.array(lens.distortion or (0.0,) * 4)
    straightened = undistort(np.float64(pixels).reshape(-1, 1, 2), lens.intrinsics, distortion).reshape(-1, 2)
    return np.concatenate([straightened, np.ones((len(straightened), 1))], axis=1)


def _consistent(pixels_1: np.ndarray, pixels_2: np.ndarray) -> np.ndarray | None:
    """bool [M], the inliers of a fundamental matrix; None if none is found."""
    try:
        inlier = cv2.findFundamentalMat(
            pixels_1, pixels_2, cv2.USAC_MAGSAC, RANSAC_PIXELS, RANSAC_CONFIDENCE, RANSAC_ROUNDS
        )[1]
    except cv2.error:  # points that are not finite, or all at one position
        return None
    return None if inlier is None else inlier.ravel().astype(bool)
