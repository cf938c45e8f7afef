"""Refinement of poses and focal lengths: feature matching, tracks, triangulation, bundle adjustment.

For cameras with errors of a few pixels. The world frame of the given cameras is kept. V images.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from data.cameras import similarity
from data.errors import SceneError
from data.io.child import ChildError, run_apart
from data.io.files import open_input
from data.io.headers import ImageError
from data.io.images import read_image, rgb_of
from data.parsed_scene import Lens, ParsedScene, PosedImage
from data.pixels import eight_bits, size_of
from data.prepare.bundle import Adjusted, adjust, resected
from data.prepare.tracks import (
    LARGEST_SIDE,
    LEAST_TRACKS,
    NEIGHBOURS,
    ImageFeatures,
    bundle_of,
    image_features,
    neighbour_pairs,
    points_of,
)
from data.scenes.undistort import fitted

LEAST_SEEN = 20  # tracks that an image needs for its pose to be refined
LEAST_FOR_FOCAL = 8  # images; with fewer, focal length and distance are ambiguous
LOST = 15.0  # pixels of reprojection error beyond which the region of interest of the given cameras is discarded
MOST_FOCAL_CHANGE = 0.2  # relative; a larger change means that the images do not determine the focal length
ALIGNING_ROUNDS, ALIGNED_SHARE = 5, 0.9  # each round keeps this fraction of the points: outlier tracks are far off

_done: dict[tuple, ParsedScene] = {}  # results of this process: all groups of photographs share one adjustment


def adjusted(parsed: ParsedScene, refines_focal: bool) -> ParsedScene:
    """`parsed` with refined cameras and a note about them; the tracks become its SfM points if it has none.

    Raises SceneError if the images have too few matches.
    """
    cameras = tuple((str(one.path), _digest(one.path), one.c2w.tobytes(), one.lens.key) for one in parsed.images)
    frame = None if parsed.scale_mat is None else parsed.scale_mat.tobytes()
    points = None if parsed.points is None else parsed.points.xyz.tobytes()
    key = (refines_focal, frame, points, cameras)
    if key not in _done:
        _done[key] = _adjusted(parsed, refines_focal)
    return _done[key]


def located(images: Sequence[PosedImage], given: ParsedScene, found: ParsedScene) -> tuple[PosedImage, ...]:
    """Other images of the scene `found`, which `adjusted` made of `given`, with refined poses.

    Each pose is fitted to points of the NEIGHBOURS nearest images of `found`, whose cameras are kept. A lens is that of
    `found` if one of its images has the same, else as given. An image with too few matches keeps its pose.
    """
    pairs = zip(given.images, found.images, strict=True)
    lenses = {before.lens.key: after.lens for before, after in pairs if after is not before}
    features = cache(lambda view: _extract_features(found.images[view]))
    given_images = (replace(posed, lens=lenses.get(posed.lens.key, posed.lens)) for posed in images)
    return tuple(_located(posed, found, features) for posed in given_images)


def _located(posed: PosedImage, found: ParsedScene, features: Callable[[int], ImageFeatures]) -> PosedImage:
    """An image with its pose; `features` of the images of `found`, by index."""
    poses = np.stack([*(one.c2w for one in found.images), posed.c2w])
    near = [view for view, other in neighbour_pairs(poses, NEIGHBOURS) if other == len(poses) - 1]
    bundle, _ = bundle_of([*map(features, near), _extract_features(posed)])
    w2c, matches = resected(bundle)
    return posed if matches < LEAST_SEEN else replace(posed, c2w=np.linalg.inv(np.vstack([w2c, poses[0, 3:]])))


def _digest(path: Path) -> bytes:
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _adjusted(parsed: ParsedScene, refines_focal: bool) -> ParsedScene:
    """`adjusted` without the cache."""
    seen = [_extract_features(posed) for posed in parsed.images]
    bundle, colours = bundle_of(seen)
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
    own = points_of(bundle, found.kept, found.error, points, colours)
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


def _extract_features(posed: PosedImage) -> ImageFeatures:
    image = eight_bits(rgb_of(read_image(posed.path)))
    try:
        lens = replace(posed.lens, intrinsics=fitted(posed.lens, size_of(image)))
    except ValueError as error:
        raise ImageError(f"{posed.path}: {error}; correct the image or its camera") from error
    return image_features(image, lens, posed.c2w)


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
