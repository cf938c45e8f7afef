"""Photographs in the order of a walk: what shows that sides which look alike were put on each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BESIDE = 2  # images in a sequence up to which two are taken one after the other
LEAST_TORN = 2  # pairs of them that contradict the cameras: a ring has at least two such seams
# Torn pairs are farther apart than so many median distances of neighbours in the sequence, and than this share of the
# extent of all, since the views of a panorama lie on each other.
FAR, LEAST_FAR = 3.0, 0.1
# A walk: this share of the neighbours in the sequence are nearer than so many median distances of the fifth next image,
# which is at most three steps away, and at least one where up to four sides lie on each other.
LEAST_WALK, NEAR, FIFTH = 0.7, 1.5, 5
MOST_NAMED = 3  # pairs of photographs in a note


def look_alike(pairs: Sequence[tuple[str, str]]) -> str:
    """What torn pairs of photographs mean, and after a semicolon what to do about it; "" without any."""
    if not pairs:
        return ""
    named = ", ".join(f"{one} and {other}" for one, other in pairs[:MOST_NAMED])
    return (
        f"the cameras are doubtful: {len(pairs)} pairs of photographs that show the same are far apart ({named}); "
        "sides that look alike may lie on each other: put something different on them or on the ground, and take the "
        "photographs again"
    )


def distances(places: np.ndarray) -> np.ndarray:
    """Between positions [V, 3] of cameras, [V, V]."""
    return np.linalg.norm(places[:, None] - places, axis=-1)


def seam_length(apart: np.ndarray) -> float | None:
    """The distance from which cameras that were used one after the other are far apart; None if there was no walk.

    apart: their `distances`, in the order of the photographs.
    """
    if len(apart) <= FIFTH:
        return None
    steps, near = np.diagonal(apart, 1), NEAR * np.median(np.sort(apart, axis=1)[:, FIFTH])
    far = max(FAR * float(np.median(steps)), LEAST_FAR * float(apart.max()))
    return far if np.mean(steps <= near) >= LEAST_WALK else None
