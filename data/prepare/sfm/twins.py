"""Sides of an object that look alike, which mapping puts on each other; pycolmap's types.

A walk around such an object shows it: photographs that were taken one after the other and have much in common end up
far apart, where others lie that show another side. In any order, photographs lie on each other, or see the same side
and not what is around it. (Repeated structures by what should match and does not: Zach, Klopschitz and Pollefeys, CVPR
2008; Heinly, Dunn and Frahm, ECCV 2014; rotations along loops: Zach, Irschara and Bischof, CVPR 2010.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from data.cameras import mean_up
from data.prepare.sfm.joining import Matched
from data.prepare.walk import BESIDE, FIFTH, LEAST_TORN, distances, seam_length

STRONG = 30  # matches: fewer may all be wrong
# In images in any order: distance over the median of that to the fifth next one, share of the images that lie so near
# another one, and share of the strong pairs that contradict the cameras.
ON_EACH_OTHER, LEAST_DOUBLES, LEAST_CONTRADICTED = 0.05, 0.25, 0.05
# Of relative rotations: they turn by at most 40 degrees. Sides that look alike are 90 degrees apart or more.
LEAST_TRACE = 1.0 + 2.0 * np.cos(np.radians(40.0))
# Images from nearly the same side, by the median angle between their rays, of which one sees none of LEAST_IN_CELL
# points in cells of the other one that have this share of the points: they show different surroundings.
SAME_SIDE, CELLS, LEAST_IN_CELL, LEAST_UNSEEN = 25.0, 8, 6, 0.25  # degrees, along each side of the image, points, share
LEAST_SURE = 3  # images that see a point
# Of the matches of an image with its best neighbour: a pair with fewer is no continuation around the object. On half of
# the fox, 20 wrong pairs of right cameras have at most 0.26.
LEAST_ALIKE = 1 / 3
ONE_SIDE = 0.5  # of `_one_sidedness`: images that could continue around an object
Names = tuple[str, str]


def twins(model: Any, pairs: Sequence[Matched], agreeing: Mapping[Names, int]) -> tuple[list[Names], list[Names]]:
    """The pairs of images that show that sides were put on each other, and those whose matches do it.

    agreeing: of `mapping.agreement`, 0 for pairs that contradict the cameras. The names are in the order of the images.
    Both are empty if nothing shows it; the latter where it is only suspected: cameras on one side of an object, and
    matches that lead on around it.
    """
    posed = sorted((image for image in model.images.values() if image.has_pose), key=lambda image: image.name)
    number = {image.name: index for index, image in enumerate(posed)}
    apart = distances(np.array([image.projection_center() for image in posed]).reshape(-1, 3))
    if len(posed) <= FIFTH:
        return [], []
    strong = [pair.names for pair in pairs if pair.names in agreeing and len(pair.pixels[0]) >= STRONG]
    wrong = [names for names in strong if not agreeing[names]]
    if (far := seam_length(apart)) is not None:
        ends = [(names, number[names[0]], number[names[1]]) for names in wrong]
        torn = [names for names, one, other in ends if abs(one - other) <= BESIDE and apart[one, other] > far]
        if len(torn) >= LEAST_TORN:
            return torn, _contradicting(model, pairs, agreeing, ())
        if (np.diagonal(apart, 1) <= far).all():
            return [], []
    if len(wrong) < max(LEAST_TORN, LEAST_CONTRADICTED * len(strong)):
        return [], []
    limit = ON_EACH_OTHER * np.median(np.sort(apart, axis=1)[:, FIFTH])
    doubles = {names for names in strong if apart[number[names[0]], number[names[1]]] < limit}
    doubles |= _other_surroundings(model, posed, [names for names in strong if agreeing[names]])
    if len({name for names in doubles for name in names}) >= LEAST_DOUBLES * len(posed):
        return wrong, _contradicting(model, pairs, agreeing, doubles)
    most = {name: max((agreeing[names] for names in agreeing if name in names), default=0) for name in number}
    own = [pair for pair in pairs if pair.names in wrong]
    is_next = [len(pair.pixels[0]) >= LEAST_ALIKE * min(most[name] for name in pair.names) for pair in own]
    turned = _turned(model, [pair for pair, alike in zip(own, is_next, strict=True) if alike])
    is_suspected = len(turned) >= max(LEAST_TORN, LEAST_CONTRADICTED * len(strong)) and _one_sidedness(posed) > ONE_SIDE
    return turned if is_suspected else [], []


def _turned(model: Any, pairs: Sequence[Matched]) -> list[Names]:
    """The pairs of images whose matches alone give another rotation than the model."""
    by_name = {image.name: image for image in model.images.values()}
    turned = []
    for pair in pairs:
        images = by_name[pair.names[0]], by_name[pair.names[1]]
        alone, own = (_turn(model, pair, images, is_agreeing) for is_agreeing in (False, True))
        if alone is not None and own is not None and np.trace(alone.T @ own) < LEAST_TRACE:
            turned.append(pair.names)
    return turned


def _one_sidedness(posed: Sequence[Any]) -> float:
    """The length of the mean horizontal view of images: 0 of a ring, 0.64 of its half, 1 in one direction."""
    poses = np.array([image.cam_from_world().inverse().matrix() for image in posed])
    up, along = mean_up(poses), poses[:, :, 2]
    level = along - np.outer(along @ up, up)
    length = np.linalg.norm(level, axis=1).sum()
    return float(np.linalg.norm(level.sum(axis=0)) / np.maximum(length, np.finfo(float).tiny))


def _contradicting(
    model: Any, pairs: Sequence[Matched], agreeing: Mapping[Names, int], doubles: Collection[Names]
) -> list[Names]:
    """The pairs of images whose matches contradict the rotations of most.

    These come from the pairs with the most matches: of images that were taken one after the other, so that a walk
    around an object turns by 360 degrees also where its sides look alike; or in any order, as long as none of
    `doubles`, which are wrong, agrees with them. Pairs of images that these do not connect are not among the result.
    """
    names = sorted(image.name for image in model.images.values())
    number = {name: index for index, name in enumerate(names)}
    by_name = {image.name: image for image in model.images.values()}
    turns = {}
    for pair in sorted(pairs, key=lambda pair: -len(pair.pixels[0])):
        if by_name.keys() >= set(pair.names):
            images = by_name[pair.names[0]], by_name[pair.names[1]]
            turn = _turn(model, pair, images, agreeing.get(pair.names, 0) > 0)
            if turn is not None:
                turns[number[pair.names[0]], number[pair.names[1]]] = turn
    ends = np.array(list(turns)).reshape(-1, 2)
    is_double = np.array([(names[one], names[other]) in doubles for one, other in ends], bool)
    is_used = ~is_double if doubles else abs(ends[:, 0] - ends[:, 1]) <= BESIDE
    part, rotations = _rotations(len(names), ends, np.array(list(turns.values())), is_used, is_double)
    is_known = part[ends[:, 0]] == part[ends[:, 1]]
    is_wrong = is_double | (is_known & ~_agree(rotations, ends, np.array(list(turns.values()))))
    return [(names[one], names[other]) for one, other in ends[is_wrong]]


def _rotations(
    count: int, ends: np.ndarray, turns: np.ndarray, is_used: np.ndarray, is_double: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The connected part [V] and the rotation [V, 3, 3] of each image, from pairs `ends` [P, 2] in this order.

    turns [P, 3, 3]: the rotations between the images of the pairs. A pair that `is_used` [P] connects two parts unless
    a pair that `is_double` [P] then agrees with the rotations.
    """
    part, rotations = np.arange(count), np.tile(np.eye(3), (count, 1, 1))
    doubles, of_doubles = ends[is_double], turns[is_double]
    for (one, other), turn in zip(ends[is_used], turns[is_used], strict=True):
        if part[one] == part[other]:
            continue
        moved, turned = part == part[other], rotations.copy()
        turned[moved] = turned[moved] @ rotations[other].T @ turn @ rotations[one]
        is_joined = (moved | (part == part[one]))[doubles].all(axis=1)
        if not _agree(turned, doubles[is_joined], of_doubles[is_joined]).any():
            part[moved], rotations = part[one], turned
    return part, rotations


def _agree(rotations: np.ndarray, ends: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Whether pairs of images agree with the rotations [V, 3, 3] of these, bool [P]."""
    between = rotations[ends[:, 1]] @ rotations[ends[:, 0]].transpose(0, 2, 1)
    return np.einsum("pij,pij->p", turns, between) >= LEAST_TRACE


def _turn(model: Any, pair: Matched, images: tuple[Any, Any], is_agreeing: bool) -> np.ndarray | None:
    """The rotation [3, 3] between two images: of the model if it agrees with the matches, else of these alone."""
    import pycolmap

    one, other = images
    if is_agreeing:
        return (other.cam_from_world() * one.cam_from_world().inverse()).rotation.matrix()
    cameras = [model.cameras[image.camera_id] for image in (one, other)]
    options = pycolmap.TwoViewGeometryOptions(compute_relative_pose=True)
    matches = np.arange(len(pair.pixels[0]))[:, None].repeat(2, axis=1).astype(np.uint32)
    geometry = pycolmap.estimate_calibrated_two_view_geometry(
        cameras[0], pair.pixels[0], cameras[1], pair.pixels[1], matches, options
    )
    return None if geometry.cam2_from_cam1 is None else geometry.cam2_from_cam1.rotation.matrix()


def _other_surroundings(model: Any, posed: Sequence[Any], strong: Sequence[Names]) -> set[Names]:
    """The pairs of images from nearly the same side that show different surroundings."""
    sure = {key: point.xyz for key, point in model.points3D.items() if point.track.length() >= LEAST_SURE}
    seen = {}
    for image in posed:
        own = [point for point in image.points2D if point.has_point3D() and point.point3D_id in sure]
        keys = np.array([point.point3D_id for point in own], np.int64)
        cells = np.array([point.xy for point in own]).reshape(-1, 2) * CELLS // _size(model, image)
        seen[image.name] = image, keys, np.array([sure[key] for key in keys]).reshape(-1, 3), cells @ [CELLS, 1]
    return {
        names
        for names in strong
        if min(_unseen(model, seen[a], seen[b]) for a, b in (names, names[::-1])) >= LEAST_UNSEEN
    }


def _size(model: Any, image: Any) -> np.ndarray:
    camera = model.cameras[image.camera_id]
    return np.array([camera.width, camera.height])


def _unseen(model: Any, one: tuple[Any, ...], other: tuple[Any, ...]) -> float:
    """The share of the points of an image that are in the other one, in cells none of whose points that one sees.

    one, other: image, names, places and cells of its points. 0 for images from different sides.
    """
    image, keys, places, cells = one
    there, theirs = other[0], other[1]
    rays = [places - camera.projection_center() for camera in (image, there)]
    cosines = np.sum(rays[0] * rays[1], axis=1) / np.prod([np.linalg.norm(ray, axis=1) for ray in rays], axis=0)
    if not len(keys) or np.median(cosines) < np.cos(np.radians(SAME_SIDE)):
        return 0.0
    local = there.cam_from_world() * places
    pixels = np.asarray(model.cameras[there.camera_id].img_from_cam(local))
    is_inside = (local[:, 2] > 0) & ((pixels >= 0) & (pixels < _size(model, there))).all(axis=1)
    count = np.bincount(cells[is_inside].astype(int), minlength=CELLS**2)
    common = np.bincount(cells[is_inside & np.isin(keys, theirs)].astype(int), minlength=CELLS**2)
    is_full = count >= LEAST_IN_CELL
    return float(count[is_full & (common == 0)].sum() / max(1, count[is_full].sum()))
