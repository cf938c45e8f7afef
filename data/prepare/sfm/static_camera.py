"""Detection of a static camera: the matches do not move between images."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data.prepare.sfm.database import PAIR_BASE
from data.prepare.sfm.matching import ENOUGH_MATCHES

# Largest median motion of a pair's matches for a static camera, relative to the longer side: feature and compression
# noise. Between neighbouring images of a walk a match moves by a tenth.
STILL = 0.003
MOSTLY = 0.6  # fraction of static pairs from which on the camera counts as static
SEEN_PAIRS = 200  # pairs that are examined


def share_of_still_pairs(database: Path, sides: Mapping[str, int]) -> float:
    """The fraction of matched pairs whose matches do not move; 0 without matches or for a damaged database.

    sides: the longer side of each image of the database, in pixels.
    """
    try:
        with contextlib.closing(sqlite3.connect(database)) as opened:
            names = dict(opened.execute("SELECT image_id, name FROM images"))
            linked = "SELECT pair_id, rows, cols, data FROM matches WHERE rows >= ? LIMIT ?"
            pairs = opened.execute(linked, (ENOUGH_MATCHES, SEEN_PAIRS)).fetchall()
            keypoints = {
                number: np.frombuffer(data, np.float32).reshape(rows, columns)[:, :2]
                for number, rows, columns, data in opened.execute("SELECT image_id, rows, cols, data FROM keypoints")
                if data is not None
            }
        moved = [_moved(keypoints, names, sides, *pair) for pair in pairs]
    except (sqlite3.Error, KeyError, IndexError, TypeError, ValueError):
        return 0.0
    return float(np.mean(np.array(moved) < STILL)) if moved else 0.0


def _moved(
    keypoints: Mapping[int, np.ndarray],
    names: Mapping[int, str],
    sides: Mapping[str, int],
    pair: int,
    rows: int,
    columns: int,
    data: bytes,
) -> float:
    """The median motion of a pair's matches, relative to the longer side."""
    first, second = pair // PAIR_BASE, pair % PAIR_BASE
    matches = np.frombuffer(data, np.uint32).reshape(rows, columns)
    away = keypoints[first][matches[:, 0]] - keypoints[second][matches[:, 1]]
    return float(np.median(np.linalg.norm(away, axis=1))) / sides[names[first]]
