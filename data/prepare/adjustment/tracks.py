"""Features that are matched between images, as tracks: the input of triangulation and bundle adjustment. V images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from data.cameras import evenly_spaced
from data.io.images import eight_bits, size_of, size_within
from data.parsed_scene import Lens, SparsePoints
from data.prepare.adjustment.bundle import LIMITS, Bundle, consistent, errors, triangulate
from data.prepare.features import Camera, Features, find_features, match_features, neighbour_pairs, normalised
from data.scenes.undistort import resized

LARGEST_SIDE = 800  # pixels; images are reduced to this size, at which features are accurate to 0.1 pixels
MOST_FEATURES = 1500
NEIGHBOURS = 8  # matched views for each view, by camera; the next image in order is matched too
LEAST_TRACKS = 100  # inlier tracks; with fewer, neither cameras nor points are reliable
SAME_LENS = 1e-3  # relative; above the rounding of float32
MOST_IMAGES = 100  # evenly chosen: more add few points and take longer than the start of a training should


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
    features = find_features(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), most=MOST_FEATURES)
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
    bundle, colours = bundle_of(
        [image_features(eight_bits(images[view]), Lens(intrinsics[view]), c2w[view]) for view in views]
    )
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
