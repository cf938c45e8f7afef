"""The image pairs to match, and explanations of images that cannot be connected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from data.errors import listed

EXHAUSTIVE_LIMIT = 150  # images; 11,175 pairs, some 20 minutes on two cores
NEIGHBOURS = 10  # COLMAP's default overlap of a sequence
ENOUGH_MATCHES = 15  # inliers that COLMAP's mapper needs for a pair (min_num_matches)


def pairs(count: int, is_sequence: bool) -> list[tuple[int, int]]:
    """The pairs (i, j), i < j, to match among `count` images.

    All pairs up to EXHAUSTIVE_LIMIT images unless they are a sequence. Otherwise each image with the next NEIGHBOURS
    and with those at distances 16, 32, ..., cyclically, since a walk around an object returns to its start.
    """
    if not is_sequence and count <= EXHAUSTIVE_LIMIT:
        return [(i, j) for i in range(count) for j in range(i + 1, count)]
    steps = [*range(1, NEIGHBOURS + 1)]
    while 2 * steps[-1] < count:
        steps.append(1 << steps[-1].bit_length())
    found = {tuple(sorted((i, (i + step) % count))) for i in range(count) for step in steps}
    return sorted((i, j) for i, j in found if i != j)


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
