"""Sides of an object that look alike, which mapping puts on each other; pycolmap's types.

A walk around such an object shows it: photographs that were taken one after the other and have much in common end up
far apart, where others lie that show another side. (Repeated structures by what should match and does not: Zach,
Klopschitz and Pollefeys, CVPR 2008; rotations along loops: Zach, Irschara and Bischof, CVPR 2010.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from data.prepare.sfm.joining import Matched
from data.prepare.walk import BESIDE, FIFTH, LEAST_TORN, distances, seam_length

STRONG = 30  # matches: fewer may all be wrong
# In images in any order: distance over the median of that to the fifth next one, share of the images that lie so near
# another one, and share of the strong pairs that contradict the cameras.
ON_EACH_OTHER, LEAST_DOUBLES, LEAST_CONTRADICTED = 0.05, 0.25, 0.05
# Of relative rotations: they turn by at most 40 degrees. Sides that look alike are 90 degrees apart or more.
LEAST_TRACE = 1.0 + 2.0 * np.cos(np.radians(40.0))


def torn_pairs(model: Any, pairs: Sequence[Matched], agreeing: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """The pairs of images that show that sides were put on each other; [] if nothing does.

    agreeing: of `mapping.agreement`, 0 for pairs that contradict the cameras. The names are in the order of the images.
    """
    posed = sorted((image for image in model.images.values() if image.has_pose), key=lambda image: image.name)
    number = {image.name: index for index, image in enumerate(posed)}
    apart = distances(np.array([image.projection_center() for image in posed]).reshape(-1, 3))
    if len(posed) <= FIFTH:
        return []
    strong = [pair.names for pair in pairs if pair.names in agreeing and len(pair.pixels[0]) >= STRONG]
    wrong = [names for names in strong if not agreeing[names]]
    if (far := seam_length(apart)) is not None:
        ends = [(names, number[names[0]], number[names[1]]) for names in wrong]
        torn = [names for names, one, other in ends if abs(one - other) <= BESIDE and apart[one, other] > far]
        return torn if len(torn) >= LEAST_TORN else []
    near = np.sort(apart, axis=1)
    doubles = np.mean(near[:, 1] < ON_EACH_OTHER * np.median(near[:, FIFTH]))
    is_torn = doubles >= LEAST_DOUBLES and len(wrong) >= max(LEAST_TORN, LEAST_CONTRADICTED * len(strong))
    return wrong if is_torn else []


def wrong_pairs(model: Any, pairs: Sequence[Matched], agreeing: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """The pairs of images whose matches contradict the rotations along the sequence of the images.

    These come from pairs that were taken one after the other, so that a walk around an object turns by 360 degrees
    also where its sides look alike. Pairs of images that no such pairs connect with the first one are not among them.
    """
    names = sorted(image.name for image in model.images.values())
    number = {name: index for index, name in enumerate(names)}
    by_name = {image.name: image for image in model.images.values()}
    turns, rows = {}, []
    for pair in pairs:
        if not by_name.keys() >= set(pair.names):
            continue
        images = by_name[pair.names[0]], by_name[pair.names[1]]
        turn = _turn(model, pair, images, agreeing.get(pair.names, 0) > 0)
        one, other = (number[name] for name in pair.names)
        if turn is not None:
            turns[one, other] = turn
            if abs(one - other) <= BESIDE:
                rows.append((one, other, 1.0 / len(pair.pixels[0])))  # the most matches first
    one, other, weights = np.array(rows).reshape(-1, 3).T
    graph = coo_matrix((weights, (one.astype(int), other.astype(int))), shape=(len(names), len(names)))
    tree = minimum_spanning_tree(graph)
    start = int(one[0]) if len(one) else 0
    order, before = breadth_first_order(tree, start, directed=False)
    rotations = {start: np.eye(3)}
    for index in order[1:]:
        parent = before[index]
        step = turns[parent, index] if (parent, index) in turns else turns[index, parent].T
        rotations[index] = step @ rotations[parent]
    return [
        (names[a], names[b])
        for (a, b), turn in turns.items()
        if {a, b} <= rotations.keys() and np.trace(turn.T @ (rotations[b] @ rotations[a].T)) < LEAST_TRACE
    ]


def _turn(model: Any, pair: Matched, images: tuple[Any, Any], is_agreeing: bool) -> np.ndarray | None:
    """The rotation [3, 3] between two images: of the model if it agrees with the matches, else of these alone."""
    import pycolmap

    one, other = images
    if is_agreeing:
        return (other.cam_from_world() * one.cam_from_world().inverse()).rotation.matrix()
    cameras = [model.cameras[image.camera_id] for image in (one, other)]
    options = pycolmap.TwoViewGeometryOptions(compute_relative_pose=True)
    matches = np.arange(len(pair.pixels[0]))[:, None].repeat(2, axis=1).astype(np.uint32)
    found = pycolmap.estimate_calibrated_two_view_geometry(
        cameras[0], pair.pixels[0], cameras[1], pair.pixels[1], matches, options
    )
    return None if found.cam2_from_cam1 is None else found.cam2_from_cam1.rotation.matrix()
