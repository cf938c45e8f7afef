"""The image pairs to match, and explanations of images that cannot be connected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from data.errors import listed

NEIGHBOURS = 10  # COLMAP's default overlap of a sequence
# Before matching all features, the largest ones of each image are compared: preemptive matching (Wu, Towards
# linear-time incremental structure from motion, 3DV 2013). Pairs with too few of them in common hardly ever overlap.
COARSE_FEATURES = 256
MOST_RATIO = 0.8  # of the distances of the nearest and the second neighbour (Lowe, IJCV 2004)
MOST_SIMILAR = 20  # images to match each image with, those with the most features in common
# Images of which all pairs are matched, 0.05 processor seconds each: up to here the chosen pairs are over half of them.
EXHAUSTIVE_LIMIT = 2 * MOST_SIMILAR
ENOUGH_MATCHES = 15  # inliers that COLMAP's mapper needs for a pair (min_num_matches)


def sequence_pairs(count: int) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, to match among `count` images of a sequence.

    Each image with the next NEIGHBOURS and with those at distances 16, 32, ..., cyclically, since a walk around an
    object returns to its start.
    """
    steps = [*range(1, NEIGHBOURS + 1)]
    while 2 * steps[-1] < count:
        steps.append(1 << steps[-1].bit_length())
    found = {tuple(sorted((i, (i + step) % count))) for i in range(count) for step in steps}
    return sorted((i, j) for i, j in found if i != j)


def similar_pairs(features: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, to match among V images: each with the MOST_SIMILAR ones, and a tree that connects all.

    features: V of [K, 128], the descriptors of the largest features of each image, of length 1.
    """
    count = len(features)
    common = np.zeros((count, count), dtype=int)
    for i in range(count):
        for j in range(i + 1, count):
            common[i, j] = common[j, i] = _common(features[i], features[j])
    nearest = np.argsort(-common, axis=1, kind="stable")[:, :MOST_SIMILAR]
    tree = minimum_spanning_tree(np.triu(1 / (1 + common), 1))
    linked = [*zip(*(ends.tolist() for ends in tree.nonzero()), strict=True)]
    linked += [(i, j) for i in range(count) for j in nearest[i].tolist() if i != j]
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
    found: dict[int, list[str]] = {}
    for name, label in zip(names, labels, strict=True):
        found.setdefault(int(label), []).append(name)
    return sorted(found.values(), key=len, reverse=True)


def why_disconnected(names: Sequence[str], links: Mapping[tuple[str, str], int]) -> str:
    """Why images cannot be reconstructed together, as the start of a sentence."""
    found = components(names, links)
    largest, rest = found[0], [name for group in found[1:] for name in group]
    if len(largest) < 2:
        return f"none of the {len(names)} photographs has {ENOUGH_MATCHES} points in common with another"
    if not rest:
        weakest = min(links.items(), key=lambda item: item[1])[0]
        return f"the {len(names)} photographs overlap too little (least: {' and '.join(weakest)})"
    others = [group for group in found[1:] if len(group) > 1]
    if others:
        groups = "; ".join(listed(group) for group in (largest, *others))
        return f"the photographs form {1 + len(others)} groups with nothing in common: {groups}"
    return f"{len(rest)} of {len(names)} photographs have too few points in common with the others: {listed(rest)}"
