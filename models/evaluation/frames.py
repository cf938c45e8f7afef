"""Check that ground truth is in the frame and scale of the scene, by its position and by alignment with the surface.

All in the working frame: the region of interest is the unit sphere at the origin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from data.errors import UserError

LEAST_INSIDE = 0.05  # smallest fraction of the ground truth inside the region of interest
SMALLEST = 0.03  # smallest extent, in radii of the region
LARGEST = 3.0  # a larger extent is a wrong scale rather than an offset
REACH = 0.9  # quantile of the distances from the centre, which ignores a few far points
MARGIN = 1.05  # radii; a surface may touch the sphere
FEWEST = 100  # smallest number of points that determines another frame
NEAR = 0.05  # fraction of the extent below which a distance counts as the same frame
BETTER = 0.3  # factor on the distance that another frame must achieve
SAME_SCALE = 0.05  # relative scale error of an incomplete training
SAMPLES = 20_000  # largest number of points of each surface: their spacing is far below NEAR
TRIED = 2000  # number of points while frames are tried
PLAIN = 1.25  # factor within which the identity is preferred: objects are often symmetric about an axis
ROUNDS = 15  # iterations of closest points, which correct the difference of the centres
AXES = "xyz"


@dataclass(frozen=True, eq=False)
class _Other:
    """Another frame: maps ground truth p to scale * rotation p + shift."""

    rotation: np.ndarray  # [3, 3]
    scale: float
    shift: np.ndarray  # [3]
    words: str

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Transform points [N, 3]."""
        return self.scale * points @ self.rotation.T + self.shift


def require_in_region(points: np.ndarray, source: str, frames: str) -> None:
    """Raises UserError if points [N, 3] are outside the region of interest, or have another size.

    source: the start of the message; frames: the advice at its end.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers so large that the sum overflows
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
    """Raises UserError if ground truth [N, 3] fits the surface's points [P, 3] far better in another frame.

    Candidates are permutations and reflections of the axes and alignments of the principal axes, each about the centre,
    with the given scale and with equal sizes. Another frame is accepted if it reduces the distance to less than NEAR
    and to less than BETTER of its value, so that an inaccurate surface is evaluated.
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
    """The centre [3] and the extent of points."""
    middle = np.median(points, axis=0)
    return middle, float(np.quantile(np.linalg.norm(points - middle, axis=1), REACH))


def _apart(found: np.ndarray, given: np.ndarray) -> float:
    """The mean of both median distances to nearest points."""
    return 0.5 * float(np.median(cKDTree(found).query(given)[0]) + np.median(cKDTree(given).query(found)[0]))


def _settled(found: np.ndarray, given: np.ndarray, other: _Other) -> _Other:
    """The frame after ROUNDS of ICP with fixed scale (Besl and McKay, PAMI 14, 1992)."""
    tree = cKDTree(found)
    for _ in range(ROUNDS):
        pairs = found[tree.query(other(given))[1]]
        source, target = given.mean(axis=0), pairs.mean(axis=0)
        left, _, right = np.linalg.svd((pairs - target).T @ (given - source))
        side = np.sign(np.linalg.det(other.rotation))  # reflections are kept
        rotation = left @ np.diag([1.0, 1.0, side * np.linalg.det(left @ right)]) @ right
        other = _Other(rotation, other.scale, target - other.scale * rotation @ source, other.words)
    return other


def _others(found: np.ndarray, given: np.ndarray) -> Iterator[_Other]:
    """The candidate frames, simplest first."""
    (there, size), (middle, own) = _place(found), _place(given)
    for rotation, words in itertools.chain(_turns(), _principal(found, given)):
        for scale in (1.0, size / own):
            yield _Other(rotation, scale, there - scale * rotation @ middle, words)


def _turns() -> Iterator[tuple[np.ndarray, str]]:
    """The 48 matrices that permute and reflect axes, with descriptions; the identity, without one, is first."""
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            rotation = np.diag(signs) @ np.eye(3)[list(order)]
            names = [f"{'-' if sign < 0 else ''}{AXES[axis]}" for sign, axis in zip(signs, order, strict=True)]
            is_same = np.array_equal(rotation, np.eye(3))
            yield rotation, "" if is_same else f"with the axes {', '.join(names)} as x, y, z"


def _principal(found: np.ndarray, given: np.ndarray) -> Iterator[tuple[np.ndarray, str]]:
    """The four rotations that align the principal axes of two point sets."""
    first, second = (np.linalg.eigh(np.cov((points - _place(points)[0]).T))[1] for points in (found, given))
    for signs in itertools.product((1.0, -1.0), repeat=2):
        rotation = first @ np.diag([*signs, 1.0]) @ second.T
        if np.linalg.det(rotation) < 0:
            rotation = first @ np.diag([*signs, -1.0]) @ second.T
        yield rotation, "turned"
