"""Objects and rooms as signed distance functions, and their surfaces as meshes. Unit-sphere frame, z up; P points."""

from __future__ import annotations

from collections.abc import Callable

import mcubes
import numpy as np
import trimesh

from data.demo.make_demo import arc_tube, capped_cylinder, jug_sdf, smooth_max, smooth_min

Sdf = Callable[[np.ndarray], np.ndarray]  # points [P, 3] -> distances [P], negative inside; exact near the zero set

EXTENT = 1.0  # the surface lies in the cube of this half width
SLAB = 1 << 20  # points of the grid evaluated at a time: bounds memory
REACH = 0.75  # of a shape of random parts: it stays within the unit sphere, fillets included
ROOM = np.array([0.72, 0.56, 0.34])  # half sides; the corners lie within the unit sphere
JUG_FOOT = -0.715


def jug(_: np.random.Generator) -> Sdf:
    """The jug of the bundled scene: a bowl, a handle and a spout."""
    return jug_sdf


def blob(random: np.random.Generator) -> Sdf:
    """Seven smoothly blended spheres without edges."""
    centers, radii = random.normal(0.0, 0.27, (7, 3)), random.uniform(0.18, 0.34, 7)
    size = (np.linalg.norm(centers, axis=1) + radii).max() / REACH
    centers, radii = centers / size, radii / size

    def sdf(points: np.ndarray) -> np.ndarray:
        return _united([np.linalg.norm(points - c, axis=1) - r for c, r in zip(centers, radii, strict=True)], 0.12)

    return sdf


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
    """A cube of thin rods with a rod through it and a ring around it: 0.05 thick, mostly empty."""
    half, rod = random.uniform(0.42, 0.5), 0.026
    corners = half * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    edges = [
        (a, b) for a in corners for b in corners if np.isclose(np.abs(a - b).sum(), 2 * half) and a.sum() < b.sum()
    ]
    edges.append((corners[0], corners[7]))

    def sdf(points: np.ndarray) -> np.ndarray:
        ring = np.hypot(np.hypot(points[:, 0], points[:, 1]) - 1.55 * half, points[:, 2]) - rod
        return _united([ring, *(capsule(points, a, b, rod) for a, b in edges)], 0.01)

    return sdf


def vase(random: np.random.Generator) -> Sdf:
    """A closed surface of revolution with a waist."""
    waist, phase = random.uniform(0.08, 0.14), random.uniform(0.0, 2.0 * np.pi)

    def sdf(points: np.ndarray) -> np.ndarray:
        height = points[:, 2]
        radius = 0.34 + waist * np.sin(5.0 * height + phase)
        side = 0.85 * (np.hypot(points[:, 0], points[:, 1]) - radius)  # the profile's slope is at most 0.7
        return smooth_max(side, np.abs(height) - 0.62, 0.08)

    return sdf


def crates(random: np.random.Generator) -> Sdf:
    """A pile of rotated boxes: flat faces, sharp edges, concave corners."""
    turns = random.uniform(0.0, np.pi, 4)
    places = [(0.0, 0.0, -0.45), (0.22, 0.1, -0.05), (-0.16, -0.1, 0.18), (0.05, 0.05, 0.48)]
    sides = [np.array([0.42, 0.36, 0.25]), *(random.uniform(0.14, 0.24, 3) for _ in range(3))]

    def sdf(points: np.ndarray) -> np.ndarray:
        return _united([box(_turned(points - p, a), s) for p, a, s in zip(places, turns, sides, strict=True)], 0.01)

    return sdf


def statue(random: np.random.Generator) -> Sdf:
    """A figure on a plinth that reaches below the ground at -0.7."""
    lean, lift = random.uniform(-0.1, 0.1), random.uniform(0.8, 1.6)

    def sdf(points: np.ndarray) -> np.ndarray:
        body = points - np.array([lean, 0.0, 0.0]) * (points[:, 2:] + 0.4)
        torso = ellipsoid(body - (0.0, 0.0, 0.1), np.array([0.2, 0.14, 0.3]))
        head = np.linalg.norm(body - (0.0, -0.02, 0.52), axis=1) - 0.125
        neck = capsule(body, np.array([0, 0, 0.3]), np.array([0, 0, 0.45]), 0.06)
        legs = [capsule(body, np.array([0.07 * s, 0, -0.5]), np.array([0.09 * s, 0, -0.1]), 0.085) for s in (-1, 1)]
        right = arc_tube(body, (0.2, 0.02), 0.22, (-0.9, lift), (0.065, 0.05))
        left = arc_tube(body * (-1, 1, 1), (0.2, 0.02), 0.2, (-1.2, 1.0), (0.065, 0.05))
        figure = _united([torso, neck, head, right, left, *legs], 0.06)
        plinth = np.minimum(box(points + (0, 0, 0.62), np.array([0.3, 0.26, 0.14])), box(points + (0, 0, 0.74), BASE))
        return smooth_min(figure, plinth, 0.03)

    return sdf


BASE = np.array([0.38, 0.34, 0.1])


def room(random: np.random.Generator) -> Sdf:
    """A room with a table, a cupboard, a column and a ball; solid beyond its walls, so that only the inside is seen."""
    place = random.uniform(-0.06, 0.06, 2)
    floor = -ROOM[2]

    def sdf(points: np.ndarray) -> np.ndarray:
        walls = -box(points, ROOM)
        top = box(points - (0.42 + place[0], 0.3, floor + 0.2), np.array([0.17, 0.12, 0.02]))
        legs = [
            capped_cylinder(np.hypot(points[:, 0] - x - place[0], points[:, 1] - y), points[:, 2], 0.02, floor, -0.14)
            for x in (0.29, 0.55)
            for y in (0.22, 0.38)
        ]
        cupboard = box(points - (-0.62, place[1], floor + 0.22), np.array([0.1, 0.2, 0.22]))
        axis = np.hypot(points[:, 0] + 0.3, points[:, 1] + 0.36)
        column = capped_cylinder(axis, points[:, 2], 0.07, -1.0, 1.0)
        ball = np.linalg.norm(points - (0.45, -0.32, floor + 0.13), axis=1) - 0.13
        return np.minimum.reduce([walls, top, *legs, cupboard, column, ball])

    return sdf


SHAPES: dict[str, Callable[[np.random.Generator], Sdf]] = {
    function.__name__: function for function in (jug, blob, bowl, frame, vase, crates, statue, room)
}
# Height at which the shape stands on the ground, where a scene has one.
GROUND = {"jug": JUG_FOOT + 0.005, "crates": -0.695, "statue": -0.7, "bowl": -0.55, "vase": -0.6, "blob": -0.45}


def surface(sdf: Sdf, cells: int) -> trimesh.Trimesh:
    """The zero set by marching cubes on `cells` points per axis, outward faces. Raises ValueError if it is empty."""
    axis = np.linspace(-EXTENT, EXTENT, cells)
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    values = np.concatenate([sdf(points[start : start + SLAB]) for start in range(0, len(points), SLAB)])
    vertices, faces = mcubes.marching_cubes(-values.reshape(cells, cells, cells), 0.0)
    if not len(faces):
        raise ValueError("the shape has no surface within the cube")
    return trimesh.Trimesh(vertices * (axis[1] - axis[0]) - EXTENT, faces.astype(np.int32), process=False)


def box(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Distance [P] to the box of half sides `half` [3] at the origin."""
    beyond = np.abs(points) - half
    return np.linalg.norm(np.maximum(beyond, 0.0), axis=1) + np.minimum(beyond.max(axis=1), 0.0)


def capsule(points: np.ndarray, start: np.ndarray, end: np.ndarray, radius: float) -> np.ndarray:
    """Distance [P] to a rod with round ends."""
    along = end - start
    share = np.clip((points - start) @ along / (along @ along), 0.0, 1.0)
    return np.linalg.norm(points - start - share[:, None] * along, axis=1) - radius


def ellipsoid(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Distance [P] to an ellipsoid of half axes `half` [3], to first order near its surface."""
    scaled = np.linalg.norm(points / half, axis=1)
    slope = np.linalg.norm(points / half**2, axis=1)
    return scaled * (scaled - 1.0) / np.maximum(slope, 1e-9)


def _turned(points: np.ndarray, angle: float) -> np.ndarray:
    """Points [P, 3] rotated about z."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return points @ np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])


def _united(distances: list[np.ndarray], width: float) -> np.ndarray:
    """The union with fillets of size `width`."""
    total = distances[0]
    for distance in distances[1:]:
        total = smooth_min(total, distance, width)
    return total
