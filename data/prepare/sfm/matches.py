"""The image pairs to match, and COLMAP's database of features and matches.

The database is read without COLMAP, which aborts if it is damaged.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from data.errors import listed
from data.prepare.steps import WorkError

# COLMAP, src/colmap/util/types.h: pair id = smaller image id * PAIR_BASE + larger image id.
PAIR_BASE = 2147483647
# Tables of matrices, and the bytes per number.
MATRICES = {"keypoints": 4, "descriptors": 1, "matches": 4, "two_view_geometries": 4}
QUICK = 0.1  # seconds to wait for a locked database
# Largest median motion of a pair's matches for a static camera, relative to the longer side: feature and compression
# noise. Between neighbouring images of a walk a match moves by a tenth.
STILL = 0.003
MOSTLY = 0.6  # fraction of static pairs from which on the camera counts as static
SEEN_PAIRS = 200  # pairs that are examined
NEIGHBOURS = 10  # COLMAP's default overlap of a sequence
# Before matching all features, the largest ones of each image are compared: preemptive matching (Wu, Towards
# linear-time incremental structure from motion, 3DV 2013). Pairs with too few of them in common hardly ever overlap.
COARSE_FEATURES = 256
MOST_RATIO = 0.8  # of the distances of the nearest and the second neighbour (Lowe, IJCV 2004)
MOST_SIMILAR = 20  # images to match each image with, those with the most features in common
# Images of which all pairs are matched, 0.05 processor seconds each: up to here the chosen pairs are over half of them.
EXHAUSTIVE_LIMIT = 2 * MOST_SIMILAR
ENOUGH_MATCHES = 15  # inliers that COLMAP's mapper needs for a pair (min_num_matches)


def is_sound(database: Path) -> bool:
    """Whether the file is an intact database whose matrices have the size of their headers."""
    try:
        if not stat.S_ISREG(os.lstat(database).st_mode):
            return False
        with contextlib.closing(sqlite3.connect(database)) as opened:
            if opened.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
                return False
            opened.execute("SELECT image_id, name, camera_id FROM images LIMIT 1")
            wrong = "WHERE rows < 0 OR cols < 0 OR rows * cols * {} != length(coalesce(data, ''))"
            return not any(
                opened.execute(f"SELECT 1 FROM {table} {wrong.format(size)} LIMIT 1").fetchall()
                for table, size in MATRICES.items()
            )
    except (OSError, ValueError, sqlite3.Error):
        return False


def has_features(database: Path, names: Collection[str]) -> bool:
    """Whether the database has features of exactly the images `names`."""
    query = "SELECT name FROM images JOIN keypoints USING (image_id) JOIN descriptors USING (image_id)"
    try:
        with contextlib.closing(sqlite3.connect(database)) as opened:
            return sorted(name for (name,) in opened.execute(query)) == sorted(names)
    except (sqlite3.Error, TypeError):
        return False


def count_rows(database: Path, table: str, otherwise: int) -> int:
    """The number of rows of a table; `otherwise` if the database cannot be read now."""
    try:
        name = f"{database.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(name, uri=True, timeout=QUICK)) as opened:
            return opened.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    except (sqlite3.Error, ValueError):
        return otherwise


def read_links(database: Path, called: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """The number of verified matches of each image pair; `called` maps the database's names to image names.

    Raises WorkError if the database is damaged.
    """
    with _opened(database) as opened:
        names = dict(opened.execute("SELECT image_id, name FROM images"))
        rows = opened.execute("SELECT pair_id, rows FROM two_view_geometries").fetchall()
        split = [(pair // PAIR_BASE, pair % PAIR_BASE, int(count)) for pair, count in rows]
        return {(called[names[a]], called[names[b]]): count for a, b, count in split}


@contextlib.contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    """The database, closed at the end of the body; raises WorkError if the database is damaged."""
    try:
        with contextlib.closing(sqlite3.connect(database)) as opened:
            yield opened
    except (sqlite3.Error, LookupError, TypeError, ValueError) as error:
        raise WorkError(f"{database}: is damaged; remove {database.parent.parent} and prepare again") from error


def copy_database(database: Path, to: Path) -> None:
    """Copy the database; raises WorkError if it is damaged."""
    with _opened(database) as opened, contextlib.closing(sqlite3.connect(to)) as copy:
        opened.backup(copy)


def forget_images(database: Path, names: Collection[str]) -> None:
    """Remove the features and matches of the images `names`."""
    with contextlib.closing(sqlite3.connect(database)) as opened:
        for key, name in opened.execute("SELECT image_id, name FROM images").fetchall():
            if name in names:
                for table in ("keypoints", "descriptors"):
                    opened.execute(f"DELETE FROM {table} WHERE image_id = ?", (key,))
                for table in ("matches", "two_view_geometries"):
                    ends = f"pair_id / {PAIR_BASE} = ? OR pair_id % {PAIR_BASE} = ?"
                    opened.execute(f"DELETE FROM {table} WHERE {ends}", (key, key))
        opened.commit()


def forget_pairs(database: Path, pairs: Collection[Collection[str]]) -> None:
    """Remove the verified matches of pairs of images, by their names."""
    with contextlib.closing(sqlite3.connect(database)) as opened:
        keys = {name: key for key, name in opened.execute("SELECT image_id, name FROM images")}
        ends = [sorted(keys[name] for name in pair) for pair in pairs]
        rows = [(PAIR_BASE * one + other,) for one, other in ends]
        opened.executemany("DELETE FROM two_view_geometries WHERE pair_id = ?", rows)
        opened.commit()


def read_largest(database: Path, names: Sequence[str], count: int) -> list[np.ndarray]:
    """The descriptors [K, 128], of length 1, of the K <= `count` largest features of each image.

    Raises WorkError if the database is damaged.
    """
    query = (
        "SELECT keypoints.cols, keypoints.data, descriptors.cols, descriptors.data FROM images JOIN keypoints USING "
        "(image_id) JOIN descriptors USING (image_id) WHERE name = ?"
    )
    with _opened(database) as opened:
        return [_largest(count, *opened.execute(query, (name,)).fetchone()) for name in names]


def _largest(count: int, width: int, keypoints: bytes | None, length: int, descriptors: bytes | None) -> np.ndarray:
    """`read_largest` for the matrices of an image."""
    # x, y, and the affine shape (a11, a12, a21, a22), whose columns are as long as the feature's scale
    shapes = np.frombuffer(keypoints or b"", np.float32).reshape(-1, width)
    order = np.argsort(-np.hypot(shapes[:, 2], shapes[:, 4]), kind="stable")[:count]
    chosen = np.frombuffer(descriptors or b"", np.uint8).reshape(-1, length)[order].astype(np.float32)
    return chosen / np.maximum(np.linalg.norm(chosen, axis=1, keepdims=True), 1)


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


def sequence_pairs(count: int) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, to match among `count` images of a sequence.

    Each image with the next NEIGHBOURS and with those at distances 16, 32, ..., cyclically, since a walk around an
    object returns to its start.
    """
    steps = [*range(1, NEIGHBOURS + 1)]
    while 2 * steps[-1] < count:
        steps.append(1 << steps[-1].bit_length())
    pairs = {tuple(sorted((i, (i + step) % count))) for i in range(count) for step in steps}
    return sorted((i, j) for i, j in pairs if i != j)


def similar_pairs(features: Sequence[np.ndarray], positions: Sequence[str] = ()) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, to match among V images: each with the MOST_SIMILAR ones, and a tree that connects all.

    features: V of [K, 128], the descriptors of the largest features of each image, of length 1. positions: V names; if
    given, each image is matched with the most similar ones of each.
    """
    count = len(features)
    common = np.zeros((count, count), dtype=int)
    for i in range(count):
        for j in range(i + 1, count):
            common[i, j] = common[j, i] = _common(features[i], features[j])
    labels = np.array(positions or [""] * count)
    parts = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    nearest = [part[np.argsort(-common[:, part], axis=1, kind="stable")[:, :MOST_SIMILAR]] for part in parts]
    tree = minimum_spanning_tree(np.triu(1 / (1 + common), 1))
    linked = [*zip(*(ends.tolist() for ends in tree.nonzero()), strict=True)]
    linked += [(i, j) for i, row in enumerate(np.hstack(nearest).tolist()) for j in row if i != j]
    return sorted({(min(pair), max(pair)) for pair in linked})


def all_pairs(count: int) -> list[tuple[int, int]]:
    """All pairs (i, j), i < j, of `count` images."""
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """The number of mutual nearest neighbours of two sets of descriptors [K, 128] that pass Lowe's ratio test."""
    if min(len(one), len(other)) < 2:
        return 0
    cosines = one @ other.T
    nearest = cosines.argmax(axis=1)
    is_mutual = cosines.argmax(axis=0)[nearest] == np.arange(len(one))
    second, first = np.partition(cosines, -2, axis=1)[:, -2:].T
    is_distinct = 1 - first <= MOST_RATIO**2 * (1 - second)  # of squared distances
    return int(np.count_nonzero(is_mutual & is_distinct))


def components(names: Sequence[str], links: Mapping[tuple[str, str], int]) -> list[list[str]]:
    """The connected components of images with ENOUGH_MATCHES, the largest first, each in the order of `names`.

    links: the number of matches of each pair of names.
    """
    index = {name: number for number, name in enumerate(names)}
    strong = [(index[a], index[b]) for (a, b), count in links.items() if count >= ENOUGH_MATCHES]
    rows, columns = np.array(strong, dtype=int).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(names)))
    _, labels = connected_components(graph, directed=False)
    parts: dict[int, list[str]] = {}
    for name, label in zip(names, labels, strict=True):
        parts.setdefault(int(label), []).append(name)
    return sorted(parts.values(), key=len, reverse=True)


def why_disconnected(names: Sequence[str], links: Mapping[tuple[str, str], int]) -> str:
    """Why images cannot be reconstructed together, as the start of a sentence."""
    parts = components(names, links)
    largest, rest = parts[0], [name for group in parts[1:] for name in group]
    if len(largest) < 2:
        return f"none of the {len(names)} photographs has {ENOUGH_MATCHES} points in common with another"
    if not rest:
        weakest = min(links.items(), key=lambda item: item[1])[0]
        return f"the {len(names)} photographs overlap too little (least: {' and '.join(weakest)})"
    others = [group for group in parts[1:] if len(group) > 1]
    if others:
        groups = "; ".join(listed(group) for group in (largest, *others))
        return f"the photographs form {1 + len(others)} groups with nothing in common: {groups}"
    return f"{len(rest)} of {len(names)} photographs have too few points in common with the others: {listed(rest)}"
