"""Features that are matched between images, as tracks: the input of triangulation and bundle adjustment. V images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from data.cameras import PIXEL_CENTRE, evenly_spaced
from data.parsed_scene import Lens, SparsePoints
from data.pixels import eight_bits, size_of, size_within
from data.prepare.bundle import LIMITS, Bundle, consistent, errors, triangulate
from data.scenes.undistort import colmap_camera, resized

LARGEST_SIDE = 800  # pixels; images are reduced to this size, at which features are accurate to 0.1 pixels
MOST_FEATURES = 1500
NEIGHBOURS = 8  # matched views for each view, by camera; the next image in order is matched too
LEAST_TRACKS = 100  # inlier tracks; with fewer, neither cameras nor points are reliable
SAME_LENS = 1e-3  # relative; above the rounding of float32
MOST_IMAGES = 100  # evenly chosen: more add few points and take longer than the start of a training should
LEAST_BASELINE = 0.1  # of the median camera distance; pairs with a shorter baseline do not constrain the geometry
CONTRAST = 0.015  # SIFT's contrast threshold; the default of 0.04 finds half as many features on smooth objects
RATIO = 0.75  # Lowe's ratio test (Lowe 2004, Distinctive image features, section 7.1)
RANSAC_PIXELS = 2.0
RANSAC_CONFIDENCE, RANSAC_ROUNDS = 0.999, 3000
LEAST_MATCHES = 16  # twice the minimal set of a fundamental matrix, which fits any smaller set
LEAST_INLIERS = 0.5  # of the matches; fewer inliers indicate matches between repeated patterns


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """The features of a reduced image."""

    camera: Camera
    features: Features
    rgb: np.ndarray  # uint8 [F, 3], at the features


def image_features(image: np.ndarray, lens: Lens, c2w: np.ndarray) -> ImageFeatures:
    """The features of an image, uint8 [H, W, 3]; the lens is that of its full size, c2w [4, 4]."""
    size = size_of(image)
    small, scale = size_within(size, LARGEST_SIDE)
    if scale < 1:
        image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    features = find_features(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), None, MOST_FEATURES)
    lens = replace(lens, intrinsics=resized(lens.intrinsics, size, small), size=small)
    x, y = np.round(features.pixels).astype(int).clip(0, np.array(small) - 1).T
    return ImageFeatures(Camera(lens, c2w), features, image[y, x])


def bundle_of(seen: Sequence[ImageFeatures]) -> tuple[Bundle, np.ndarray]:
    """The input of the bundle adjustment, and the colour of each track, uint8 [N, 3]."""
    poses = np.stack([one.camera.c2w for one in seen])
    beside = {(index, index + 1) for index in range(len(seen) - 1)}
    starts = np.cumsum([0, *(len(one.features.pixels) for one in seen)])
    links = [np.zeros((0, 2), int)]
    for i, j in sorted(beside | set(neighbour_pairs(poses, NEIGHBOURS))):
        match = match_features(seen[i].camera, seen[i].features, seen[j].camera, seen[j].features)
        if match is not None:
            links.append(match.rows + [starts[i], starts[j]])
    view, track, feature = _tracks(np.concatenate(links), starts)
    pinholes, lens = _lenses([one.camera.lens for one in seen])
    flat = np.zeros((len(view), 2))
    for index, one in enumerate(seen):
        rows = view == index
        given = normalised(one.camera.lens, one.features.pixels[feature[rows]])
        flat[rows] = given[:, :2] / given[:, 2:] * pinholes[lens[index], :2] + pinholes[lens[index], 2:]
    colours = np.zeros((int(track.max(initial=-1)) + 1, 3), np.uint8)
    colours[track] = np.array([seen[v].rgb[f] for v, f in zip(view, feature, strict=True)]).reshape(-1, 3)
    return Bundle(np.linalg.inv(poses)[:, :3], pinholes, lens, view, track, flat), colours


def _tracks(links: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """View, track and feature index [O] of each observation; tracks with two features in one image are dropped.

    links: [L, 2], matched features; the features of view v have the numbers from starts[v] on.
    """
    total = int(starts[-1])
    graph = coo_matrix((np.ones(len(links)), links.T), shape=(total, total))
    _, labels = connected_components(graph, directed=False)
    nodes = np.flatnonzero(np.bincount(labels, minlength=total)[labels] > 1)
    view = np.searchsorted(starts, nodes, side="right") - 1
    pair = labels[nodes].astype(np.int64) * len(starts) + view
    _, inverse, counts = np.unique(pair, return_inverse=True, return_counts=True)
    is_twice = np.zeros(total, bool)
    is_twice[labels[nodes][counts[inverse] > 1]] = True
    good = ~is_twice[labels[nodes]]
    nodes, view = nodes[good], view[good]
    _, track = np.unique(labels[nodes], return_inverse=True)
    return view, track, nodes - starts[view]


def _lenses(lenses: Sequence[Lens]) -> tuple[np.ndarray, np.ndarray]:
    """fx, fy, cx, cy of each distinct lens [C, 4], and the index of the lens of each image [V]."""
    found: list[np.ndarray] = []
    which = []
    for lens in lenses:
        own = lens.intrinsics[(0, 1, 0, 1), (0, 1, 2, 2)]
        same = (index for index, other in enumerate(found) if np.allclose(own, other, rtol=SAME_LENS))
        which.append(next(same, len(found)))
        if which[-1] == len(found):
            found.append(own)
    return np.array(found), np.array(which)


def points_of(
    bundle: Bundle, kept: np.ndarray, error: np.ndarray, xyz: np.ndarray, colours: np.ndarray
) -> SparsePoints:
    """The tracks at xyz [N, 3] with at least two inliers among the observations `kept` [O], of `error` [O] pixels."""
    counts = np.bincount(bundle.track[kept], minlength=len(xyz))
    sums = np.bincount(bundle.track[kept], error[kept], minlength=len(xyz))
    good = counts >= 2
    return SparsePoints(xyz[good], counts[good], sums[good] / counts[good], colours[good])


def triangulated(
    images: Sequence[np.ndarray], intrinsics: np.ndarray, c2w: np.ndarray
) -> tuple[SparsePoints | None, str]:
    """The points matched between undistorted images, and a note about them; None if the cameras fit too few matches.

    images: unsigned integers [H, W, 3], V of them; intrinsics [V, 3, 3], c2w [V, 4, 4]. The cameras are kept as given.
    """
    views = evenly_spaced(len(images), MOST_IMAGES)
    seen = [image_features(eight_bits(images[view]), Lens(intrinsics[view]), c2w[view]) for view in views]
    bundle, colours = bundle_of(seen)
    xyz = triangulate(bundle, bundle.w2c, bundle.pinholes)
    error = errors(bundle, bundle.w2c, bundle.pinholes, xyz)
    kept = consistent(bundle, error, LIMITS[-1])
    points = points_of(bundle, kept, error, xyz, colours)
    if len(points.xyz) < LEAST_TRACKS:
        return None, (
            f"no SfM points: the cameras fit {len(points.xyz)} of {len(xyz)} matched points; {LEAST_TRACKS} are needed"
        )
    return replace(points, are_derived=True), (
        f"{len(points.xyz)} SfM points triangulated from {len(views)} photographs: median reprojection error "
        f"{np.median(error[kept]):.2f} pixels of images at most {LARGEST_SIDE} wide"
    )


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


def find_features(grey: np.ndarray, mask: np.ndarray | None, most: int) -> Features:
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
