"""Refinement of poses and focal lengths, and points, by features that are matched between images.

For cameras with errors of a few pixels. The world frame of the given cameras is kept. V images.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from data.cameras import evenly_spaced
from data.errors import SceneError
from data.io.child import ChildError, run_apart
from data.io.files import open_input
from data.io.headers import ImageError
from data.io.images import read_image, rgb_of
from data.parsed_scene import Lens, ParsedScene, PosedImage, SparsePoints
from data.pixels import eight_bits, size_of
from data.prepare.bundle import Adjusted, adjust, locate, triangulate
from data.prepare.tracks import LARGEST_SIDE, NEIGHBOURS, ImageFeatures, image_features, matched, neighbour_pairs
from data.scenes.undistort import fitted

LEAST_TRACKS = 100  # points; with fewer, neither cameras nor points are reliable
LEAST_FIT = 0.4  # of the matched features: 0.99 with right cameras, 0.2 with wrong ones
MOST_IMAGES = 100  # evenly chosen: more add few points and take longer than the start of a training should
LEAST_SEEN = 20  # points that an image needs for its pose to be refined
LEAST_FOR_FOCAL = 8  # images; with fewer, focal length and distance are ambiguous
LOST = 15.0  # pixels of reprojection error beyond which the region of interest of the given cameras is discarded
MOST_FOCAL_CHANGE = 0.2  # relative; a larger change means that the images do not determine the focal length

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


def located(images: Sequence[PosedImage], given: ParsedScene, adjusted: ParsedScene) -> tuple[PosedImage, ...]:
    """Other images of the scene `adjusted`, which the function `adjusted` made of `given`, with refined poses.

    Each pose is fitted to points of the NEIGHBOURS nearest images of `adjusted`, whose cameras are kept. A lens is that
    of `adjusted` if one of its images has the same, else as given. An image with too few matches keeps its pose.
    """
    pairs = zip(given.images, adjusted.images, strict=True)
    lenses = {before.lens.key: after.lens for before, after in pairs if after is not before}
    features = cache(lambda view: _extract_features(adjusted.images[view]))
    given_images = (replace(posed, lens=lenses.get(posed.lens.key, posed.lens)) for posed in images)
    return tuple(_located(posed, adjusted, features) for posed in given_images)


def _located(posed: PosedImage, adjusted: ParsedScene, features: Callable[[int], ImageFeatures]) -> PosedImage:
    """An image with its pose; `features` of the images of `adjusted`, by index."""
    poses = np.stack([*(one.c2w for one in adjusted.images), posed.c2w])
    near = [view for view, other in neighbour_pairs(poses, NEIGHBOURS) if other == len(poses) - 1]
    seen = [*map(features, near), _extract_features(posed)]
    c2w, count = _apart(f"the photographs of {adjusted.source}", locate, seen, matched(seen))
    return posed if count < LEAST_SEEN else replace(posed, c2w=c2w)


def triangulated(
    images: Sequence[np.ndarray], intrinsics: np.ndarray, c2w: np.ndarray
) -> tuple[SparsePoints | None, str]:
    """The points matched between undistorted images, and a note about them; None if the cameras fit too few matches.

    images: unsigned integers [H, W, 3], V of them; intrinsics [V, 3, 3], c2w [V, 4, 4]. The cameras are kept as given.
    """
    views = evenly_spaced(len(images), MOST_IMAGES)
    seen = [image_features(eight_bits(images[view]), Lens(intrinsics[view]), c2w[view]) for view in views]
    points, error, fit = _apart("the photographs", triangulate, seen, matched(seen))
    if len(points.xyz) < LEAST_TRACKS or fit < LEAST_FIT:
        return None, (
            f"no SfM points: the cameras fit {fit:.0%} of the matched features, {len(points.xyz)} points; "
            f"{LEAST_TRACKS} are needed, and {LEAST_FIT:.0%}"
        )
    return replace(points, are_derived=True), (
        f"{len(points.xyz)} SfM points triangulated from {len(views)} photographs: median reprojection error "
        f"{error:.2f} pixels of images at most {LARGEST_SIDE} wide"
    )


def _apart(source: object, task: Callable[..., Any], *arguments: object) -> Any:
    """`run_apart`; raises SceneError if pycolmap fails."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return run_apart(task, *arguments, log=Path(scratch) / "log")
        except ChildError as error:
            raise SceneError(
                f"{source}: COLMAP failed on their matches ({error}); set dataset.refine_cameras = none and "
                "dataset.triangulate_points = False"
            ) from error


def _digest(path: Path) -> bytes:
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _adjusted(parsed: ParsedScene, refines_focal: bool) -> ParsedScene:
    """`adjusted` without the cache."""
    seen = [_extract_features(posed) for posed in parsed.images]
    fitted = _apart(
        f"the photographs of {parsed.source}",
        adjust,
        seen,
        matched(seen),
        refines_focal and len(seen) >= LEAST_FOR_FOCAL,
    )
    if len(fitted.points.xyz) < LEAST_TRACKS or fitted.fit < LEAST_FIT:
        raise SceneError(
            f"{parsed.source}: its cameras cannot be adjusted: only {len(fitted.points.xyz)} points, {fitted.fit:.0%} "
            f"of the matched features, fit them ({LEAST_TRACKS} are needed, and {LEAST_FIT:.0%}); set "
            "dataset.refine_cameras = none"
        )
    change = np.abs(fitted.zoom - 1).max()
    if change > MOST_FOCAL_CHANGE:
        raise SceneError(
            f"{parsed.source}: adjusting its cameras changes focal lengths by {change:.0%}, so the focal lengths or "
            "the poses are wrong; run --mode prepare on the photographs, or set dataset.refine_cameras = none"
        )
    posed_images = tuple(
        replace(posed, c2w=pose, lens=_zoomed(posed.lens, zoom)) if count >= LEAST_SEEN else posed
        for posed, pose, zoom, count in zip(parsed.images, fitted.c2w, fitted.zoom, fitted.counts, strict=True)
    )
    notes = (*parsed.notes, *_notes(fitted))
    if fitted.before > LOST:
        notes = (*notes, f"the given cameras were off by {fitted.before:.0f} pixels: region and points are recomputed")
        return replace(parsed, images=posed_images, points=fitted.points, scale_mat=None, region_mat=None, notes=notes)
    kept = fitted.points if parsed.points is None else parsed.points
    return replace(parsed, images=posed_images, points=kept, notes=notes)


def _extract_features(posed: PosedImage) -> ImageFeatures:
    image = eight_bits(rgb_of(read_image(posed.path)))
    try:
        lens = replace(posed.lens, intrinsics=fitted(posed.lens, size_of(image)))
    except ValueError as error:
        raise ImageError(f"{posed.path}: {error}; correct the image or its camera") from error
    return image_features(image, lens, posed.c2w)


def _zoomed(lens: Lens, zoom: np.ndarray) -> Lens:
    """The lens with focal lengths multiplied by `zoom` [2]."""
    intrinsics = lens.intrinsics.copy()
    intrinsics[(0, 1), (0, 1)] *= zoom
    return replace(lens, intrinsics=intrinsics)


def _notes(fitted: Adjusted) -> list[str]:
    """Notes for the log on the accuracy and on cameras that were not refined."""
    notes = [
        f"cameras adjusted to {len(fitted.points.xyz)} points matched between photographs: median reprojection error "
        f"{fitted.before:.2f} before and {fitted.after:.2f} after, in pixels of images {LARGEST_SIDE} wide; focal "
        f"lengths changed by {np.abs(fitted.zoom - 1).max():.2%}"
    ]
    few = np.flatnonzero(fitted.counts < LEAST_SEEN)
    if len(few):
        notes.append(f"{len(few)} cameras have too few matches with others and are not adjusted: {few.tolist()}")
    return notes
