"""Refinement of poses and focal lengths: feature matching, tracks, triangulation, bundle adjustment.

For cameras with errors of a few pixels. The world frame of the given cameras is kept. V images.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from data.cameras import similarity
from data.errors import SceneError
from data.io.child import ChildError, run_apart
from data.io.images import eight_bits, read_image, rgb_of, size_within
from data.parsed_scene import Lens, ParsedScene, PosedImage, SparsePoints
from data.scenes.bundle import Adjusted, Bundle, adjust
from data.scenes.features import Camera, Features, find_features, match_features, neighbour_pairs, normalised
from data.scenes.undistort import fitted, resized

LARGEST_SIDE = 800  # pixels; images are reduced to this size, at which features are accurate to 0.1 pixels
MOST_FEATURES = 1500
NEIGHBOURS = 8  # matched views for each view, by camera; the next image in order is matched too
LEAST_TRACKS = 100  # inlier tracks after the adjustment
LEAST_SEEN = 20  # tracks that an image needs for its pose to be refined
LEAST_FOR_FOCAL = 8  # images; with fewer, focal length and distance are ambiguous
LOST = 15.0  # pixels of reprojection error beyond which the region of interest of the given cameras is discarded
MOST_FOCAL_CHANGE = 0.2  # relative; a larger change means that the images do not determine the focal length
ALIGNING_ROUNDS, ALIGNED_SHARE = 5, 0.9  # each round keeps this fraction of the points: outlier tracks are far off
SAME_LENS = 1e-3  # relative; above the rounding of float32

_done: dict[int, ParsedScene] = {}  # results of this process: the training and the held-out scene share one adjustment


@dataclass(frozen=True, eq=False)
class _ImageFeatures:
    """The features of a reduced image."""

    camera: Camera
    features: Features
    rgb: np.ndarray  # uint8 [F, 3], at the features


def adjusted(parsed: ParsedScene, refines_focal: bool) -> ParsedScene:
    """`parsed` with refined cameras and a note about them; the tracks become its SfM points if it has none.

    Raises SceneError if the images have too few matches.
    """
    files = (
        (str(one.path), _digest(one.path), one.c2w.tobytes(), one.lens.intrinsics.tobytes()) for one in parsed.images
    )
    frame = b"" if parsed.scale_mat is None else parsed.scale_mat.tobytes()
    key = hash((refines_focal, frame, parsed.points is None, *files))
    if key not in _done:
        _done[key] = _adjusted(parsed, refines_focal)
    return _done[key]


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _adjusted(parsed: ParsedScene, refines_focal: bool) -> ParsedScene:
    """`adjusted` without the cache."""
    seen = [_extract_features(posed) for posed in parsed.images]
    bundle, colours = _bundle(parsed.images, seen)
    if bundle.track.max(initial=-1) + 1 < LEAST_TRACKS:
        raise _too_few_tracks(parsed, int(bundle.track.max(initial=-1) + 1))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = run_apart(adjust, bundle, refines_focal and len(seen) >= LEAST_FOR_FOCAL, log=Path(scratch) / "log")
        except ChildError as error:
            raise SceneError(
                f"{parsed.source}: its cameras cannot be adjusted ({error}); set dataset.refine_cameras = none"
            ) from error
    tracks = np.unique(bundle.track[found.kept])
    if len(tracks) < LEAST_TRACKS:
        raise _too_few_tracks(parsed, len(tracks))
    counts = np.bincount(bundle.view[found.kept], minlength=len(seen))
    zoom = found.pinholes[:, :2] / bundle.pinholes[:, :2]
    if np.abs(zoom - 1).max() > MOST_FOCAL_CHANGE:
        raise SceneError(
            f"{parsed.source}: adjusting its cameras changes focal lengths by {np.abs(zoom - 1).max():.0%}, so the "
            "focal lengths or the poses are wrong; run --mode prepare on the photographs, or set "
            "dataset.refine_cameras = none"
        )
    is_sure = counts >= LEAST_SEEN
    poses, points = _in_old_frame(found)
    posed_images = tuple(
        replace(posed, c2w=pose, lens=_zoomed(posed.lens, zoom[lens])) if sure else posed
        for posed, pose, lens, sure in zip(parsed.images, poses, bundle.lens, is_sure, strict=True)
    )
    own = _points(bundle, found, points, colours)
    notes = (*parsed.notes, *_notes(found, counts, zoom))
    if found.before > LOST:
        notes = (*notes, f"the given cameras were off by {found.before:.0f} pixels: region and points are recomputed")
        return replace(parsed, images=posed_images, points=own, scale_mat=None, region_mat=None, notes=notes)
    kept = own if parsed.points is None else parsed.points
    return replace(parsed, images=posed_images, points=kept, notes=notes)


def _too_few_tracks(parsed: ParsedScene, tracks: int) -> SceneError:
    return SceneError(
        f"{parsed.source}: its cameras cannot be adjusted: only {tracks} points are matched between photographs "
        f"({LEAST_TRACKS} are needed); set dataset.refine_cameras = none"
    )


def _extract_features(posed: PosedImage) -> _ImageFeatures:
    image = eight_bits(rgb_of(read_image(posed.path)))
    size = (image.shape[1], image.shape[0])
    small, scale = size_within(size, LARGEST_SIDE)
    if scale < 1:
        image = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    features = find_features(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), most=MOST_FEATURES)
    lens = replace(posed.lens, intrinsics=resized(fitted(posed.lens, size), size, small), size=small)
    x, y = np.round(features.pixels).astype(int).clip(0, np.array(small) - 1).T
    return _ImageFeatures(Camera(lens, posed.c2w), features, image[y, x])


def _bundle(posed_images: Sequence[PosedImage], seen: Sequence[_ImageFeatures]) -> tuple[Bundle, np.ndarray]:
    """The input of the bundle adjustment, and the colour of each track, uint8 [N, 3]."""
    poses = np.stack([posed.c2w for posed in posed_images])
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


def _in_old_frame(found: Adjusted) -> tuple[np.ndarray, np.ndarray]:
    """Poses [V, 4, 4] and points [N, 3], aligned to the given frame by a robust similarity."""
    bottom = np.broadcast_to([0.0, 0.0, 0.0, 1.0], (len(found.w2c), 1, 4))
    new = np.linalg.inv(np.concatenate([found.w2c, bottom], axis=1))
    rows = np.flatnonzero(np.isfinite(found.xyz[:, 0]) & np.isfinite(found.start[:, 0]))
    for _ in range(ALIGNING_ROUNDS):
        turn, scale, shift = similarity(found.xyz[rows], found.start[rows])
        away = np.linalg.norm(scale * found.xyz[rows] @ turn.T + shift - found.start[rows], axis=1)
        rows = rows[away <= np.quantile(away, ALIGNED_SHARE)]
    new[:, :3, 3] = scale * new[:, :3, 3] @ turn.T + shift
    new[:, :3, :3] = turn @ new[:, :3, :3]
    return new, scale * found.xyz @ turn.T + shift


def _zoomed(lens: Lens, zoom: np.ndarray) -> Lens:
    """The lens with focal lengths multiplied by `zoom` [2]."""
    intrinsics = lens.intrinsics.copy()
    intrinsics[(0, 1), (0, 1)] *= zoom
    return replace(lens, intrinsics=intrinsics)


def _points(bundle: Bundle, found: Adjusted, xyz: np.ndarray, colours: np.ndarray) -> SparsePoints:
    """The inlier tracks with at least two observations."""
    counts = np.bincount(bundle.track[found.kept], minlength=len(xyz))
    sums = np.bincount(bundle.track[found.kept], found.error[found.kept], minlength=len(xyz))
    good = counts >= 2
    return SparsePoints(xyz[good], counts[good], sums[good] / counts[good], colours[good])


def _notes(found: Adjusted, counts: np.ndarray, zoom: np.ndarray) -> tuple[str, ...]:
    """Notes for the log on the accuracy and on cameras that were not refined."""
    after = float(np.median(found.error[found.kept]))
    tracks = int(np.isfinite(found.xyz[:, 0]).sum())
    notes = [
        f"cameras adjusted to {tracks} points matched between photographs: median reprojection error "
        f"{found.before:.2f} before and {after:.2f} after, in pixels of images {LARGEST_SIDE} wide; focal lengths "
        f"changed by {np.abs(zoom - 1).max():.2%}"
    ]
    few = np.flatnonzero(counts < LEAST_SEEN)
    if len(few):
        notes.append(f"{len(few)} cameras have too few matches with others and are not adjusted: {few.tolist()}")
    return tuple(notes)
