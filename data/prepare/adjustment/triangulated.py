"""SfM points of images whose cameras are given without points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from data.cameras import evenly_spaced
from data.io.images import eight_bits
from data.parsed_scene import Lens, SparsePoints
from data.prepare.adjustment.bundle import LIMITS, consistent, errors, triangulate
from data.prepare.adjustment.tracks import LARGEST_SIDE, LEAST_TRACKS, bundle_of, image_features, points_of

MOST_IMAGES = 100  # evenly chosen: more add few points and take longer than the start of a training should


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
