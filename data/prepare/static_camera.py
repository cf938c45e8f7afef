"""Whether the camera stood still: then what is matched does not move from image to image."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from data.prepare.database import PAIR_BASE
from data.prepare.matching import ENOUGH_MATCHES

# Share of the longer side by which the median match of a pair moves at the most where the camera stood still: noise of
# features and compression. From one image of a walk to the next a match moves by a tenth.
STILL = 0.003
MOSTLY = 0.6  # share of the linked pairs that are still
SEEN_PAIRS = 200  # that are looked at


def share_of_still_pairs(database: Path, sides: Mapping[str, int]) -> float:
    """Of the pairs of images that are linked, those whose matches do not move; 0 where nothing is linked.

    sides: the longer side of each image of the database, in pixels. 0 too for a database that does not tell.
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
    """By how much the median match of a pair moves, as a share of the longer side."""
    first, second = pair // PAIR_BASE, pair % PAIR_BASE
    matches = np.frombuffer(data, np.uint32).reshape(rows, columns)
    away = keypoints[first][matches[:, 0]] - keypoints[second][matches[:, 1]]
    return float(np.median(np.linalg.norm(away, axis=1))) / sides[names[first]]
