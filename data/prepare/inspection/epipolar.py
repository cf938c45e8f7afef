"""Verification of the cameras by the epipolar distances of matched features.

SIFT features are matched between images, and outliers are removed without using the cameras (a fundamental matrix by
RANSAC). For correct cameras the matches are on the predicted epipolar lines, to a third of a pixel in real scenes. They
are many pixels off if the cameras are shifted by one image, rotated, mirrored or in another convention. A similarity
of all cameras cannot be detected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from data.cameras import evenly_spaced
from data.errors import listed_views
from data.parsed_scene import MASK_HALF, Lens
from data.pixels import eight_bits
from data.prepare import tracks
from data.prepare.walk import LEAST_TORN, distances, look_alike, seam_length
from data.scenes.scene import Scene

LARGEST_SIDE = 640  # pixels; images are reduced to this size, which is accurate enough
MOST_FEATURES = 1000  # of an image
MOST_VIEWS = 100  # evenly chosen
NEIGHBOURS = 3  # matched views for each view, by camera; the next image in order is matched too

LEAST_PAIRS = 0.05  # of the pairs must have matches; fewer may be wrong matches

# The results of `pair_distances`: `inspect` and `evaluate` need them, and matching takes seconds.
_MEASURED: WeakKeyDictionary[Scene, tuple[list[PairDistance], list[tuple[int, int]]]] = WeakKeyDictionary()
# Median distance from the epipolar lines, pixels of images reduced to 640. On four scenes, three of them real, correct
# cameras give 0.2 to 0.3; cameras rotated by a degree, in another convention or of the next image give 2 to 100.
GOOD_DISTANCE, FAIR_DISTANCE = 0.75, 1.5
FAIR_CONTRADICTED = 0.1  # share of the views


@dataclass(frozen=True)
class PairDistance:
    """Two views and the median epipolar distance of their matches, pixels of the reduced images."""

    first: int
    second: int
    pixels: float


def pair_distances(scene: Scene) -> tuple[list[PairDistance], list[tuple[int, int]]]:
    """The pairs of neighbouring views with enough matches, and all pairs that were tried.

    Neighbours by camera and by the order of the images: wrong cameras may be next to each other although their images
    show different things. Of the same scene they are measured once.
    """
    if scene not in _MEASURED:
        _MEASURED[scene] = _measured(scene)
    return _MEASURED[scene]


def _measured(scene: Scene) -> tuple[list[PairDistance], list[tuple[int, int]]]:
    """`pair_distances`, without those measured earlier."""
    chosen = evenly_spaced(scene.n_views, MOST_VIEWS)
    beside = {(index, index + 1) for index in range(len(chosen) - 1)}
    pairs = sorted(beside | set(tracks.neighbour_pairs(scene.c2w[chosen], NEIGHBOURS)))
    seen = [_view(scene, int(view)) for view in chosen] if pairs else []
    distances = []
    for i, j in pairs:
        rows = tracks.match_features(seen[i], seen[j])
        if rows is None:
            continue
        with np.errstate(all="ignore"):  # without a baseline the epipolar lines are NaN
            pixels = float(np.median(np.abs(epipolar_distances(seen[i], seen[j], rows))))
        if np.isfinite(pixels):
            distances.append(PairDistance(int(chosen[i]), int(chosen[j]), pixels))
    return distances, [(int(chosen[i]), int(chosen[j])) for i, j in pairs]


def median_distance(pairs: Sequence[PairDistance], tried: Sequence[tuple[int, int]]) -> float | None:
    """The median of the pairs' distances, pixels; None if too few of the tried pairs have matches."""
    return float(np.median([pair.pixels for pair in pairs])) if len(pairs) > LEAST_PAIRS * len(tried) else None


def epipolar_distances(first: tracks.ImageFeatures, second: tracks.ImageFeatures, rows: np.ndarray) -> np.ndarray:
    """Signed distances [M] of matches, `rows` [M, 2], to the epipolar lines, pixels.

    The mean of both images (H&Z, section 11.4.3).
    """
    second_from_first = np.linalg.inv(second.c2w) @ first.c2w
    x, y, z = second_from_first[:3, 3]
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ second_from_first[:3, :3]
    pairs = (first, rows[:, 0]), (second, rows[:, 1])
    rays_1, rays_2 = (tracks.normalised(one.lens, one.pixels[own]) for one, own in pairs)
    lines_2, lines_1 = rays_1 @ essential.T, rays_2 @ essential
    product = np.sum(lines_2 * rays_2, axis=1)
    focal_1, focal_2 = (np.sqrt(np.linalg.det(one.lens.intrinsics)) for one in (first, second))
    lengths_1, lengths_2 = (np.linalg.norm(lines[:, :2], axis=1) for lines in (lines_1, lines_2))
    return 0.5 * (focal_1 * product / lengths_1 + focal_2 * product / lengths_2)


def worst_views(pairs: Sequence[PairDistance], limit: float) -> np.ndarray:
    """The views with most of their pairs beyond `limit` pixels, the worst first."""
    own: dict[int, list[float]] = {}
    for pair in pairs:
        for view in (pair.first, pair.second):
            own.setdefault(view, []).append(pair.pixels)
    middle = {view: sorted(pixels)[(len(pixels) - 1) // 2] for view, pixels in own.items()}
    return np.array(sorted((view for view in middle if middle[view] > limit), key=lambda view: -middle[view]), int)


def lone_views(pairs: Sequence[PairDistance], tried: Sequence[tuple[int, int]]) -> np.ndarray:
    """The indices of views that have no matches, although their neighbours have; ascending.

    A view is included if it has no matches with any neighbour, and each of its neighbours has matches with most of its
    own. Views with a single neighbour are ignored.
    """
    matched = {(pair.first, pair.second) for pair in pairs}
    beside: dict[int, list[int]] = {}
    for first, second in tried:
        beside.setdefault(first, []).append(second)
        beside.setdefault(second, []).append(first)
    share = {
        view: [(min(view, other), max(view, other)) in matched for other in others] for view, others in beside.items()
    }
    lone = {view for view, others in beside.items() if len(others) > 1 and not any(share[view])}

    def is_matched(view: int) -> bool:
        """Whether `view` has matches with most of its neighbours that are not lone."""
        own = [is_found for other, is_found in zip(beside[view], share[view], strict=True) if other not in lone]
        return sum(own) > len(own) / 2

    return np.array(sorted(view for view in lone if all(map(is_matched, beside[view]))), int)


def _view(scene: Scene, view: int) -> tracks.ImageFeatures:
    """The features of a view; only those inside the mask, if there is one."""
    mask = None if scene.masks is None else np.where(scene.masks[view] > MASK_HALF, np.uint8(255), np.uint8(0))
    image, lens = eight_bits(scene.images[view]), Lens(scene.intrinsics[view])
    return tracks.image_features(image, lens, scene.c2w[view], mask, LARGEST_SIDE, MOST_FEATURES)


def cameras(scene: Scene) -> Finding:
    """Whether matches of neighbouring images agree with the cameras, and each camera has an image."""
    finding = _finding(scene)
    if scene.spare_cameras <= 0:
        return finding
    figure = f"{scene.spare_cameras} more than photographs; {finding.figure}"
    if finding.verdict != "good":
        return replace(finding, figure=figure)
    consequence = "correct only if the last photographs are the missing ones: provide a photograph for every camera"
    return Finding("cameras", figure, "fair", consequence)


def torn_pairs(scene: Scene, pairs: Sequence[PairDistance]) -> list[PairDistance]:
    """The pairs of views taken one after the other that match, contradict their cameras, and are far apart.

    Sides that look alike were then put on each other. [] if the views are not in the order of a walk.
    """
    apart = distances(scene.c2w[:, :3, 3])
    if (far := seam_length(apart)) is None:
        return []
    beside = [pair for pair in pairs if pair.second == pair.first + 1 and pair.pixels > FAIR_DISTANCE]
    return [pair for pair in beside if apart[pair.first, pair.second] > far]


def doubt(scene: Scene) -> str:
    """Why the cameras may be wrong although most matches agree with them, a sentence; "" if nothing says so."""
    if scene.frame is not None and scene.frame.doubt:
        return scene.frame.doubt
    torn = torn_pairs(scene, pair_distances(scene)[0])
    names = [(scene.photographs[pair.first], scene.photographs[pair.second]) for pair in torn]
    return look_alike(names if len(torn) >= LEAST_TORN else [])


def _finding(scene: Scene) -> Finding:
    if why := doubt(scene):
        figure, _, consequence = why.partition("; ")
        return Finding("cameras", figure, "bad", consequence)
    pairs, tried = pair_distances(scene)
    median = median_distance(pairs, tried)
    if median is None:
        figure = f"{len(pairs)} of {len(tried)} pairs of neighbouring views have enough matches"
        consequence = (
            "the cameras cannot be verified: the photographs have no texture, or do not belong to these cameras"
        )
        return Finding("cameras", figure, "fair", consequence)
    wrong = worst_views(pairs, FAIR_DISTANCE)
    figure = f"matched features are {median:.2f} pixels off their epipolar lines (median of {len(pairs)} pairs)"
    verdict = graded(median, GOOD_DISTANCE, FAIR_DISTANCE)
    share = len(wrong) / len({view for pair in pairs for view in (pair.first, pair.second)})
    verdict = max(verdict, graded(share, 0.0, FAIR_CONTRADICTED), key=("good", "fair", "bad").index)
    lone = lone_views(pairs, tried)
    if len(lone):
        figure = f"{figure}; no matches with their neighbours: {listed_views(lone, scene.photographs)}"
    if verdict == "good" and len(lone):
        consequence = (
            "the cameras of these views cannot be verified, although their neighbours agree: check whether the "
            "photographs are mirrored, blurred or of another object; replace them or leave them out"
        )
        return Finding("cameras", figure, "fair", consequence)
    if verdict == "good" and scene.frame is not None and scene.frame.limit:
        limit, _, consequence = scene.frame.limit.partition("; ")
        return Finding("cameras", f"{figure}; {limit}", "fair", consequence)
    if verdict == "good":
        return Finding("cameras", figure, verdict, "the cameras agree with the photographs")
    if len(wrong):
        figure = f"{figure}; contradicted: {listed_views(wrong, scene.photographs)}"
    if verdict == "bad":
        consequence = (
            "these are not the cameras of these photographs: check for a photograph that was removed or added, another "
            "order of names, or another pose convention; dataset.refine_cameras=poses corrects small errors"
        )
        return Finding("cameras", figure, verdict, consequence)
    consequence = (
        "views with wrong cameras blur the reconstruction: correct their poses (dataset.refine_cameras=poses) or leave "
        "them out"
        if len(wrong)
        else "the cameras are off by a pixel, which blurs fine detail: refine them (dataset.refine_cameras=poses)"
    )
    return Finding("cameras", figure, verdict, consequence)


@dataclass(frozen=True)
class Finding:
    """One row of the health table."""

    check: str
    figure: str  # what was measured
    verdict: str  # good, fair or bad
    consequence: str  # for the training, one sentence

    @property
    def line(self) -> str:
        """The finding in one line."""
        return f"{self.check} ({self.verdict}): {self.figure}; {self.consequence}"


def graded(value: float, good: float, fair: float) -> str:
    """The verdict on a value that is good from `good` and fair from `fair` upwards; downwards if good < fair."""
    sign = 1 if good >= fair else -1
    if sign * value >= sign * good:
        return "good"
    return "fair" if sign * value >= sign * fair else "bad"
