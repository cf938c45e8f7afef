"""Colours: textures of surfaces, backgrounds, and shading. Unit-sphere frame; P points or rays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.ndimage import map_coordinates

from benchmarks.gallery.scenes import SceneSpec
from data.demo.make_demo import albedo

Texture = Callable[[np.ndarray], np.ndarray]  # points [P, 3] -> colours [P, 3] in [0, 1]

LATTICE = 32  # cells of the noise before it repeats
OCTAVES = (3.0, 9.0, 27.0)  # cells per radius: seen from afar and from near
ROOM_OCTAVES = (5.0, 18.0, 60.0)  # walls are seen from nearer
CEILING = 0.33  # height above which a room is plain
NOISE_CONTRAST = 0.9
HUE = 0.35  # differences between channels, beside those of brightness
CHECKS = 5.5  # per radius
SUN = np.array([0.45, -0.6, 0.66]) / np.linalg.norm([0.45, -0.6, 0.66])
LAMP = np.array([0.0, 0.0, 0.24])  # of a room
AMBIENT, DIFFUSE = 0.5, 0.55
SHININESS, HIGHLIGHT, MIRROR = 60.0, 0.7, 0.35
BLACK, GREY, WALL = (0.0, 0.0, 0.0), (0.55, 0.55, 0.55), (0.62, 0.6, 0.56)
ZENITH, HORIZON = np.array([0.32, 0.5, 0.8]), np.array([0.8, 0.85, 0.9])
TABLE_RADIUS = 1.6
HEDGE_RADIUS, HEDGE_HEIGHT = 7.0, 1.6  # outdoors: what stands around, radii
FADE = 0.18  # per radius of distance: fine texture of the ground becomes its mean before it aliases


def noise(random: np.random.Generator, octaves: tuple[float, ...] = OCTAVES) -> Texture:
    """Smooth noise of several scales, around 0 and mostly within 0.5, mainly in brightness and less in hue."""
    lattices = random.uniform(-0.5, 0.5, (len(octaves), 3, LATTICE, LATTICE, LATTICE))
    lattices = HUE * lattices + lattices[:, :1]

    def value(points: np.ndarray) -> np.ndarray:
        total = np.zeros((len(points), 3))
        for frequency, lattice in zip(octaves, lattices, strict=True):
            places = (points * frequency).T
            total += np.stack([map_coordinates(one, places, order=1, mode="grid-wrap") for one in lattice], axis=1)
        return total / np.sqrt(len(octaves))

    return value


def texture(spec: SceneSpec) -> Texture:
    """The solid texture of the scene's object."""
    random = spec.random(1)
    color = np.array(spec.color)
    shift = random.uniform(-1.0, 1.0, 3)
    grain = noise(random, ROOM_OCTAVES if spec.backdrop == "room" else OCTAVES)

    def colored(points: np.ndarray) -> np.ndarray:
        if spec.texture == "plain":
            return np.broadcast_to(color, points.shape)
        if spec.texture == "marble":
            return albedo(points + 0.2 * shift)
        if spec.texture == "checker":
            parity = np.floor(CHECKS * (points + shift)).sum(axis=1) % 2
            return np.clip(color * (0.55 + 0.7 * parity[:, None]) + 0.25 * grain(points), 0.0, 1.0)
        is_plain = (spec.backdrop == "room") & (points[:, 2:] > CEILING)
        return np.clip(color + NOISE_CONTRAST * np.where(is_plain, 0.0, grain(points)), 0.02, 1.0)

    return colored


class Backdrop:
    """The background of a scene except the ground, and the environment that the object reflects."""

    def __init__(self, spec: SceneSpec) -> None:
        self._kind = spec.backdrop
        self._clouds = noise(spec.random(5), (1.5, 4.0))
        self._leaves = noise(spec.random(6), (0.8, 2.4, 7.0))
        self._turf = noise(spec.random(7), (2.0, 8.0, 24.0))
        self.ground = spec.ground

    def colors(self, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Colours [P, 3] along unit directions [P, 3]."""
        if self._kind != "outdoors":
            plain = {"black": BLACK, "grey": GREY}.get(self._kind, WALL)
            return np.broadcast_to(np.array(plain), directions.shape).copy()
        found = self.sky(directions)
        level = np.maximum(np.hypot(directions[:, 0], directions[:, 1]), 1e-9)
        middle = np.sum(origins[:, :2] * directions[:, :2], axis=1) / level**2
        gap = (np.sum(origins[:, :2] ** 2, axis=1) - HEDGE_RADIUS**2) / level**2
        depth = -middle + np.sqrt(np.maximum(middle**2 - gap, 0.0))
        places = origins + depth[:, None] * directions
        is_hedge = places[:, 2] < self.ground + HEDGE_HEIGHT * (1.0 + 0.3 * np.sin(places[:, 0] + 0.7 * places[:, 1]))
        found[is_hedge] = np.clip(np.array([0.2, 0.33, 0.16]) + 0.5 * self._leaves(places[is_hedge]), 0.0, 1.0)
        return found

    def sky(self, directions: np.ndarray) -> np.ndarray:
        """A cloudy sky [P, 3], which glossy objects reflect with any backdrop."""
        height = np.clip(directions[:, 2:], 0.0, 1.0)
        clouds = self._clouds(directions).mean(axis=1, keepdims=True)
        return np.clip(HORIZON + (ZENITH - HORIZON) * np.sqrt(height) + 0.5 * clouds, 0.0, 1.0)

    def ground_depth(self, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Distance [P] along each ray to the ground; infinite if the ray does not hit it."""
        depth = np.full(len(directions), np.inf)
        if self.ground is None:
            return depth
        down = directions[:, 2] < -1e-9
        depth[down] = (self.ground - origins[down, 2]) / directions[down, 2]
        places = origins[down] + depth[down, None] * directions[down]
        reach = TABLE_RADIUS if self._kind == "wall" else HEDGE_RADIUS
        depth[np.flatnonzero(down)[np.linalg.norm(places[:, :2], axis=1) > reach]] = np.inf
        return depth

    def ground_colors(self, points: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Albedo [P, 3] of ground points [P, 3] at `distances` [P] from the camera."""
        mean = np.array([0.45, 0.42, 0.3] if self._kind == "outdoors" else [0.6, 0.5, 0.42])
        fade = np.exp(-FADE * np.maximum(distances - 3.0, 0.0))[:, None]
        return np.clip(mean + fade * NOISE_CONTRAST * self._turf(points), 0.0, 1.0)


def towards_light(spec: SceneSpec, points: np.ndarray) -> np.ndarray:
    """Unit directions [P, 3] from points [P, 3] to the sun, or to the lamp of a room."""
    if spec.backdrop != "room":
        return np.broadcast_to(SUN, points.shape)
    away = LAMP - points
    return away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9)


def shaded(colors: np.ndarray, normals: np.ndarray, light: np.ndarray, lit: np.ndarray | float = 1.0) -> np.ndarray:
    """Lambertian shading [P, 3] of albedo by unit normals and directions to the light [P, 3]; `lit` is 0 in shadow."""
    lambert = np.maximum(np.sum(normals * light, axis=1), 0.0) * lit
    return colors * (AMBIENT + DIFFUSE * lambert)[:, None]


def reflected(
    backdrop: Backdrop, normals: np.ndarray, light: np.ndarray, directions: np.ndarray, lit: np.ndarray
) -> np.ndarray:
    """The specular part [P, 3] of a glossy surface: a highlight (Blinn-Phong) and the sky, stronger at grazing angles
    (Schlick).
    """
    half = light - directions
    half /= np.maximum(np.linalg.norm(half, axis=1, keepdims=True), 1e-9)
    highlight = HIGHLIGHT * lit * np.maximum(np.sum(normals * half, axis=1), 0.0) ** SHININESS
    facing = np.clip(-np.sum(normals * directions, axis=1), 0.0, 1.0)
    mirrored = directions + 2.0 * facing[:, None] * normals
    share = MIRROR * (0.2 + 0.8 * (1.0 - facing) ** 5)
    return highlight[:, None] + share[:, None] * backdrop.sky(mirrored)
