"""Objects and rooms as signed distance functions, and their surfaces as meshes. Unit-sphere frame, z up; P points."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import mcubes
import numpy as np
import trimesh

from data.demo.make_demo import capped_cylinder, jug_sdf, smooth_min

Sdf = Callable[[np.ndarray], np.ndarray]  # points [P, 3] -> distances [P], negative inside; exact near the zero set

REACH = 0.75  # of a shape of random parts: it stays within the unit sphere, fillets included
RELIEF, RELIEF_REACH = 0.022, 0.1  # height of a wave of a stone, of its length; radii from the lump that it changes
ROOM = np.array([0.72, 0.56, 0.34])  # half sides; the corners lie within the unit sphere


def smooth_max(a: np.ndarray, b: np.ndarray, width: float) -> np.ndarray:
    """Maximum with a rounded edge of size `width`: the intersection of two solids."""
    return -smooth_min(-a, -b, width)


def jug(_: np.random.Generator) -> Sdf:
    """The jug of the bundled scene: a bowl, a handle and a spout."""
    return jug_sdf


def blob(random: np.random.Generator) -> Sdf:
    """Seven smoothly blended spheres without edges."""
    centers, radii = random.normal(0.0, 0.27, (7, 3)), random.uniform(0.18, 0.34, 7)
    size = (np.linalg.norm(centers, axis=1) + radii).max() / REACH
    spheres = list(zip(centers / size, radii / size, strict=True))
    return lambda points: _united([np.linalg.norm(points - c, axis=1) - r for c, r in spheres], 0.12)


def bowl(random: np.random.Generator) -> Sdf:
    """A deep open bowl with a ball in it: concave, with occlusion."""
    radius, wall = random.uniform(0.58, 0.68), random.uniform(0.07, 0.11)
    ball = np.array([*random.uniform(-0.12, 0.12, 2), -0.2])

    def sdf(points: np.ndarray) -> np.ndarray:
        distance = np.linalg.norm(points, axis=1)
        shell = smooth_max(distance - radius, radius - wall - distance, 0.02)
        open_shell = smooth_max(shell, points[:, 2] - 0.12, 0.03)
        return smooth_min(open_shell, np.linalg.norm(points - ball, axis=1) - 0.22, 0.02)

    return sdf


def frame(random: np.random.Generator) -> Sdf:
    """A cube of thin rods with a rod through it: 0.05 thick, mostly empty."""
    half = random.uniform(0.42, 0.5)
    corners = half * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    edges = [
        (a, b) for a in corners for b in corners if np.isclose(np.abs(a - b).sum(), 2 * half) and a.sum() < b.sum()
    ]
    edges.append((corners[0], corners[7]))
    return lambda points: _united([_rod(points, a, b, 0.026) for a, b in edges], 0.01)


def vase(random: np.random.Generator) -> Sdf:
    """A closed surface of revolution with a waist."""
    waist, phase = random.uniform(0.08, 0.14), random.uniform(0.0, 2.0 * np.pi)

    def sdf(points: np.ndarray) -> np.ndarray:
        radius = 0.34 + waist * np.sin(5.0 * points[:, 2] + phase)
        side = 0.85 * (np.hypot(points[:, 0], points[:, 1]) - radius)  # the profile's slope is at most 0.7
        return smooth_max(side, np.abs(points[:, 2]) - 0.62, 0.08)

    return sdf


def crates(random: np.random.Generator) -> Sdf:
    """A pile of rotated boxes: flat faces, sharp edges, concave corners."""
    angles = random.uniform(0.0, np.pi, 4)
    sides = [np.array([0.42, 0.36, 0.25]), *(random.uniform(0.14, 0.24, 3) for _ in range(3))]
    places = [(0.0, 0.0, -0.45), (0.22, 0.1, -0.05), (-0.16, -0.1, 0.18), (0.05, 0.05, 0.48)]
    turns = [np.array([[np.cos(a), -np.sin(a), 0.0], [np.sin(a), np.cos(a), 0.0], [0.0, 0.0, 1.0]]) for a in angles]
    boxes = list(zip(places, turns, sides, strict=True))
    return lambda points: _united([_box((points - place) @ turn.T, side) for place, turn, side in boxes], 0.01)


def room(random: np.random.Generator) -> Sdf:
    """A room with a cupboard, a column and a ball; solid beyond its walls, so that only the inside is seen."""
    place, floor = random.uniform(-0.06, 0.06, 2), -ROOM[2]

    def sdf(points: np.ndarray) -> np.ndarray:
        cupboard = _box(points - (-0.62, place[1], floor + 0.22), np.array([0.1, 0.2, 0.22]))
        column = capped_cylinder(np.hypot(points[:, 0] + 0.3, points[:, 1] + 0.36), points[:, 2], 0.07, -1.0, 1.0)
        ball = np.linalg.norm(points - (0.45 + place[0], -0.32, floor + 0.13), axis=1) - 0.13
        return np.minimum.reduce([-_box(points, ROOM), cupboard, column, ball])

    return sdf


def stone(random: np.random.Generator) -> Sdf:
    """A lump with relief: waves of 0.3 to 0.02 radii, higher the longer they are."""
    lengths = np.geomspace(0.3, 0.02, 24)
    waves = random.normal(0.0, 1.0, (len(lengths), 3))
    waves *= 2.0 * np.pi / (lengths * np.linalg.norm(waves, axis=1))[:, None]
    phases, lump = random.uniform(0.0, 2.0 * np.pi, len(lengths)), random.normal(0.0, 2.0, (3, 3))

    def sdf(points: np.ndarray) -> np.ndarray:
        distance = np.linalg.norm(points / (1.0, 0.8, 1.1), axis=1)
        sides = _unit(points)
        found = distance - 0.57 * (1.0 + 0.05 * np.sin(sides @ lump).sum(axis=1))
        near = np.flatnonzero(np.abs(found) < RELIEF_REACH)
        found[near] -= np.sin(sides[near] @ waves.T + phases) @ (RELIEF * lengths)
        return found

    return sdf


SHAPES: dict[str, Callable[[np.random.Generator], Sdf]] = {
    function.__name__: function for function in (jug, blob, bowl, frame, vase, crates, room, stone)
}
# Height at which the shape stands on the ground, where a scene has one.
GROUND = {"jug": -0.71, "crates": -0.695, "stone": -0.5}


def surface(sdf: Sdf, cells: int) -> trimesh.Trimesh:
    """The zero set within the cube of half width 1, by marching cubes on `cells` points per axis, outward faces."""
    axis = np.linspace(-1.0, 1.0, cells)
    slabs = [sdf(np.stack(np.meshgrid(x, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)) for x in axis]
    vertices, faces = mcubes.marching_cubes(-np.reshape(slabs, (cells, cells, cells)), 0.0)
    return trimesh.Trimesh(vertices * (axis[1] - axis[0]) - 1.0, faces.astype(np.int32), process=False)


def _box(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Distance [P] to the box of half sides `half` [3] at the origin."""
    beyond = np.abs(points) - half
    return np.linalg.norm(np.maximum(beyond, 0.0), axis=1) + np.minimum(beyond.max(axis=1), 0.0)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def _rod(points: np.ndarray, start: np.ndarray, end: np.ndarray, radius: float) -> np.ndarray:
    """Distance [P] to a rod with round ends."""
    along = end - start
    share = np.clip((points - start) @ along / (along @ along), 0.0, 1.0)
    return np.linalg.norm(points - start - share[:, None] * along, axis=1) - radius


def _united(distances: list[np.ndarray], width: float) -> np.ndarray:
    """The union with fillets of size `width`."""
    return reduce(lambda one, other: smooth_min(one, other, width), distances)
