"""Checks that ground truth is in the frame and scale of the scene, by its place and by which frame fits the surface.

The working frame throughout: the region of interest is the unit sphere at the origin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from data.errors import UserError

LEAST_INSIDE = 0.05  # share of the ground truth that lies in the region of interest, where it is of the same frame
SMALLEST = 0.03  # of the region's radius: what reaches no farther from its middle is a point among the pixels
LARGEST = 3.0  # what reaches farther is another scale rather than an offset
REACH = 0.9  # quantile of the distances from the middle: a few far points do not make a scene large
MARGIN = 1.05  # of the radius: a surface may touch the sphere
FEWEST = 100  # points: fewer have no shape that could tell another frame
NEAR = 0.05  # of the reach: a surface that near is in the same frame, whatever else would fit
BETTER = 0.3  # of its distance: what another frame must leave at the most to be believed
SAME_SCALE = 0.05  # relative: a difference that a half-trained surface may have
SAMPLES = 20_000  # of each surface, at most: their spacing stays far below NEAR
TRIED = 2000  # of them, while frames are tried
PLAIN = 1.25  # times as far off may be what needs no other axes: things are often round about one of them
ROUNDS = 15  # of closest points, which take away what the middles are apart
AXES = "xyz"


@dataclass(frozen=True, eq=False)
class _Other:
    """Another frame: ground truth p is taken for scale * rotation p + shift."""

    rotation: np.ndarray  # [3, 3]
    scale: float
    shift: np.ndarray  # [3]
    words: str

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Points [N, 3] as they would lie."""
        return self.scale * points @ self.rotation.T + self.shift


def require_in_region(points: np.ndarray, source: str, frames: str) -> None:
    """Raises UserError where points [N, 3] lie elsewhere than the region of interest, or are of another size.

    source: what the message begins with; frames: how to mend it.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers beyond all others, which are far off
        middle, reach = _place(points)
        inside = float(np.mean(np.linalg.norm(points, axis=1) <= MARGIN))
        off = float(np.linalg.norm(middle))
    if inside >= LEAST_INSIDE and (reach >= SMALLEST or len(points) < FEWEST):
        return
    told = f"its centre is {off:.3g} radii from the centre of the region of interest"
    if reach > LARGEST or reach < SMALLEST:
        told = (
            f"it extends {reach:.3g} radii from the centre of the region of interest, the object should extend 0.2 to 1"
        )
    raise UserError(f"{source}: has another frame or scale than the scene: {told}; {frames}")


def require_same_frame(found: np.ndarray, given: np.ndarray, source: str, frames: str) -> None:
    """Raises UserError where ground truth [N, 3] fits the surface's points [P, 3] far better in another frame.

    Tried: axes swapped or mirrored, the principal axes of both laid upon each other, each about the middle, with the
    scale as it is and with the sizes made equal. Another frame is believed where it brings the surfaces within NEAR of
    each other and takes away all but BETTER of their distance, so that a surface that is merely wrong is scored.
    """
    size = _place(given)[1]
    own = _apart(found, given)
    if own <= NEAR * size or len(given) < FEWEST:
        return
    few, fewer = found[:: max(1, len(found) // TRIED)], given[:: max(1, len(given) // TRIED)]
    plainest = min(_others(few, fewer), key=lambda other: _apart(few, other(fewer)) * (PLAIN if other.words else 1.0))
    best = _settled(few, fewer, plainest)
    apart = _apart(found, best(given))
    if apart > min(BETTER * own, NEAR * size * best.scale):
        return
    parts = [best.words] if best.words else []
    if abs(best.scale - 1) > SAME_SCALE:
        parts.append(f"scaled by {best.scale:.3g}")
    if not parts:
        parts.append("shifted by " + " ".join(f"{part:.2g}" for part in best.shift) + " radii")
    raise UserError(
        f"{source}: has another frame or scale than the scene: {', '.join(parts)}, it is {own / apart:.0f} "
        f"times closer to the surface; {frames}"
    )


def _place(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The middle [3] of points, and how far they reach from it."""
    middle = np.median(points, axis=0)
    return middle, float(np.quantile(np.linalg.norm(points - middle, axis=1), REACH))


def _apart(found: np.ndarray, given: np.ndarray) -> float:
    """The mean of both median distances to the other's nearest point."""
    return 0.5 * float(np.median(cKDTree(found).query(given)[0]) + np.median(cKDTree(given).query(found)[0]))


def _settled(found: np.ndarray, given: np.ndarray, other: _Other) -> _Other:
    """The frame after ROUNDS of closest points, its scale as it is (Besl and McKay, PAMI 14, 1992)."""
    tree = cKDTree(found)
    for _ in range(ROUNDS):
        pairs = found[tree.query(other(given))[1]]
        source, target = given.mean(axis=0), pairs.mean(axis=0)
        left, _, right = np.linalg.svd((pairs - target).T @ (given - source))
        side = np.sign(np.linalg.det(other.rotation))  # mirrored stays mirrored
        rotation = left @ np.diag([1.0, 1.0, side * np.linalg.det(left @ right)]) @ right
        other = _Other(rotation, other.scale, target - other.scale * rotation @ source, other.words)
    return other


def _others(found: np.ndarray, given: np.ndarray) -> Iterator[_Other]:
    """The frames that are tried, the plainest first."""
    (there, size), (middle, own) = _place(found), _place(given)
    for rotation, words in itertools.chain(_turns(), _principal(found, given)):
        for scale in (1.0, size / own):
            yield _Other(rotation, scale, there - scale * rotation @ middle, words)


def _turns() -> Iterator[tuple[np.ndarray, str]]:
    """The 48 matrices that swap and mirror axes, and their words; the identity, without words, first."""
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            rotation = np.diag(signs) @ np.eye(3)[list(order)]
            names = [f"{'-' if sign < 0 else ''}{AXES[axis]}" for sign, axis in zip(signs, order, strict=True)]
            is_same = np.array_equal(rotation, np.eye(3))
            yield rotation, "" if is_same else f"with the axes {', '.join(names)} as x, y, z"


def _principal(found: np.ndarray, given: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """The four rotations that lay the principal axes of one upon those of the other."""
    first, second = (np.linalg.eigh(np.cov((points - _place(points)[0]).T))[1] for points in (found, given))
    for signs in itertools.product((1.0, -1.0), repeat=2):
        rotation = first @ np.diag([*signs, 1.0]) @ second.T
        if np.linalg.det(rotation) < 0:
            rotation = first @ np.diag([*signs, -1.0]) @ second.T
        yield rotation, "turned"
