"""Features that are matched between images: the input of triangulation and bundle adjustment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from data.cameras import PIXEL_CENTRE
from data.parsed_scene import Lens
from data.pixels import size_of, size_within
from data.scenes.undistort import colmap_camera, resized

LARGEST_SIDE = 800  # pixels; images are reduced to this size, at which features are accurate to 0.1 pixels
MOST_FEATURES = 1500
NEIGHBOURS = 8  # matched views for each view, by camera; the next image in order is matched too
LEAST_BASELINE = 0.1  # of the median camera distance; pairs with a shorter baseline do not constrain the geometry
CONTRAST = 0.015  # SIFT's contrast threshold; the default of 0.04 finds half as many features on smooth objects
RATIO = 0.75  # Lowe's ratio test (Lowe 2004, Distinctive image features, section 7.1)
RANSAC_PIXELS = 2.0
RANSAC_CONFIDENCE, RANSAC_ROUNDS = 0.999, 3000
LEAST_MATCHES = 16  # twice the minimal set of a fundamental matrix, which fits any smaller set
LEAST_INLIERS = 0.5  # of the matches; fewer inliers indicate matches between repeated patterns


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """The F features of a reduced image, with its camera."""

    lens: Lens
    c2w: np.ndarray  # [4, 4]
    pixels: np.ndarray  # [F, 2] float64
    descriptors: np.ndarray  # [F, 128] float32
    rgb: np.ndarray  # uint8 [F, 3]


def image_features(
    image: np.ndarray,
    lens: Lens,
    c2w: np.ndarray,
    mask: np.ndarray | None = None,
    longest: int = LARGEST_SIDE,
    most: int = MOST_FEATURES,
) -> ImageFeatures:
    """At most `most` features of an image, uint8 [H, W, 3], reduced to `longest`; lens and mask are of its full size.

    mask: uint8 [H, W], above 0 where features are wanted; None for everywhere.
    """
    size = size_of(image)
    small, scale = size_within(size, longest)
    if scale < 1:
        image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        mask = None if mask is None else cv2.resize(mask, small, interpolation=cv2.INTER_NEAREST)
    # Without precise upscaling SIFT's keypoints are off by a quarter of a pixel.
    detector = cv2.SIFT.create(most, contrastThreshold=CONTRAST, enable_precise_upscale=True)
    points, descriptors = detector.detectAndCompute(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), mask)  # type: ignore[arg-type]
    pixels = np.array([point.pt for point in points], dtype=np.float64).reshape(-1, 2)
    x, y = np.round(pixels).astype(int).clip(0, np.array(small) - 1).T
    lens = replace(lens, intrinsics=resized(lens.intrinsics, size, small), size=small)
    return ImageFeatures(
        lens, c2w, pixels, np.zeros((0, 128), np.float32) if descriptors is None else descriptors, image[y, x]
    )


def matched(seen: Sequence[ImageFeatures]) -> list[tuple[int, int, np.ndarray]]:
    """Pairs of images, neighbours by camera or in order, with the indices [M, 2] of their verified matches."""
    pairs = {(index, index + 1) for index in range(len(seen) - 1)}
    pairs |= set(neighbour_pairs(np.stack([one.c2w for one in seen]), NEIGHBOURS))
    matches = [(one, other, match_features(seen[one], seen[other])) for one, other in sorted(pairs)]
    return [(one, other, rows) for one, other, rows in matches if rows is not None]


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


def match_features(first: ImageFeatures, second: ImageFeatures) -> np.ndarray | None:
    """The indices of the verified matches of two images, int [M, 2]; None if there are too few."""
    if min(len(first.pixels), len(second.pixels)) < LEAST_MATCHES:
        return None
    candidates = cv2.BFMatcher().knnMatch(first.descriptors, second.descriptors, k=2)
    good = [best for best, other in candidates if best.distance < RATIO * other.distance]
    if len(good) < LEAST_MATCHES:
        return None
    rows = np.array([(match.queryIdx, match.trainIdx) for match in good])
    # Undistorted pixels, so that one fundamental matrix fits the whole image.
    flat = [
        (normalised(one.lens, one.pixels[own]) @ one.lens.intrinsics.T)[:, :2]
        for one, own in ((first, rows[:, 0]), (second, rows[:, 1]))
    ]
    inlier = _consistent(*flat)
    if inlier is None or inlier.sum() < max(LEAST_MATCHES, LEAST_INLIERS * len(good)):
        return None
    return rows[inlier]


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
