"""The generated scenes: object, background, cameras and lighting. The seed of a scene determines every pixel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from benchmarks.gallery.shapes import GROUND, ROOM, SHAPES
from data.demo.make_demo import look_at_center
from data.scenes.frustum import sphere_points

HELD_OUT_EVERY = 8  # photographs 0, 8, 16, ... are held out
DISTANCE = 3.0  # of the cameras from the middle, radii
INSIDE_FOV = 80.0  # degrees across the photograph's shorter side, within a room
CLEARANCE = 0.12  # of a camera in a room from everything, radii
OFF_MIDDLE = 0.35  # likewise from the middle: a training refuses cameras within 0.3 radii of it
WALK_HEIGHTS = (0.25, 0.55, 0.95)  # of the camera over its horizontal distance
FRONT = np.radians(65.0)  # to either side of the middle
AIM_NOISE, DISTANCE_NOISE = 0.03, 0.06  # a person does not stand where a formula says


@dataclass(frozen=True)
class SceneSpec:
    """The specification of a generated scene."""

    name: str
    shape: str  # a key of shapes.SHAPES
    texture: str = "marble"  # or plain, noise, grit (finer noise), checker
    color: tuple[float, float, float] = (0.72, 0.6, 0.5)  # of the plain texture, and the mean of the others
    gloss: float = 0.0  # weight of highlights; 0: matt
    backdrop: str = "black"  # or grey, table (a ground before a grey wall)
    rig: str = "sphere"  # or walk, front, inside
    photographs: int = 36
    size: tuple[int, int] = (200, 200)  # width, height, pixels
    exposure: float = 0.0  # standard deviation of the exposure over the photographs, stops
    noise: float = 0.003  # standard deviation of a pixel's noise, of white
    pose_error: float = 0.0  # standard deviation of the written poses: degrees, and hundredths of the radius
    has_masks: bool = True
    has_points: bool = False  # whether the scene has structure-from-motion points that a training may use
    cells: int = 160  # grid points per axis of the mesh that is photographed
    seed: int = 0  # of the shape's parameters, the texture, the poses and the noise

    def random(self, part: int) -> np.random.Generator:
        """A generator for one part of the scene, so that a change of one part does not affect the others."""
        return np.random.default_rng([self.seed, part])

    @property
    def ground(self) -> float | None:
        """Height of the ground; None for a scene without one."""
        return GROUND[self.shape] if self.backdrop == "table" else None

    @property
    def intrinsics(self) -> np.ndarray:
        """[V, 3, 3]: the unit sphere touches the image borders, or the field of view is INSIDE_FOV."""
        width, height = self.size
        wide = 1.0 / np.tan(np.radians(INSIDE_FOV / 2))
        focal = 0.5 * min(self.size) * (wide if self.rig == "inside" else np.sqrt(DISTANCE**2 - 1.0))
        one = np.array([[focal, 0.0, 0.5 * (width - 1)], [0.0, focal, 0.5 * (height - 1)], [0.0, 0.0, 1.0]])
        return np.repeat(one[None], self.photographs, axis=0)


def poses(spec: SceneSpec) -> np.ndarray:
    """Camera to unit-sphere frame [V, 4, 4] of the photographs."""
    random = spec.random(2)
    if spec.rig == "inside":
        eyes = _free_places(spec, random)
        turns = 2.0 * np.pi * np.arange(spec.photographs) * (np.sqrt(5.0) - 1.0) / 2.0
        towards = np.stack([np.cos(turns), np.sin(turns), random.uniform(-0.45, 0.35, spec.photographs)], axis=1)
        aims = eyes + towards
    else:
        distances = DISTANCE * random.uniform(1.0 - DISTANCE_NOISE, 1.0 + DISTANCE_NOISE, (spec.photographs, 1))
        aims = random.normal(0.0, AIM_NOISE, (spec.photographs, 3))
        eyes = _directions(spec.rig, spec.photographs) * distances
    found = np.stack([look_at_center(eye - aim) for eye, aim in zip(eyes, aims, strict=True)])
    found[:, :3, 3] = eyes
    return found


def written_poses(spec: SceneSpec) -> np.ndarray:
    """The poses in the camera file, perturbed by `pose_error`."""
    found, random = poses(spec), spec.random(3)
    turns = Rotation.from_rotvec(random.normal(0.0, np.radians(spec.pose_error), (spec.photographs, 3)))
    found[:, :3, :3] = turns.as_matrix() @ found[:, :3, :3]
    found[:, :3, 3] += random.normal(0.0, 0.01 * spec.pose_error, (spec.photographs, 3))
    return found


def exposures(spec: SceneSpec) -> np.ndarray:
    """The exposure factor of each photograph [V].

    It is 1 for held-out photographs, so that their PSNR does not depend on an unpredictable exposure.
    """
    stops = spec.exposure * spec.random(4).normal(0.0, 1.0, spec.photographs)
    stops[::HELD_OUT_EVERY] = 0.0
    return 2.0**stops


def _free_places(spec: SceneSpec, random: np.random.Generator) -> np.ndarray:
    """Places [V, 3] in a room for cameras, off its furniture and its middle."""
    sdf, found = SHAPES[spec.shape](spec.random(0)), np.zeros((0, 3))
    while len(found) < spec.photographs:
        tried = random.uniform(-1.0, 1.0, (spec.photographs, 3)) * ROOM * (1.0, 1.0, 0.5)
        is_free = (sdf(tried) > CLEARANCE) & (np.linalg.norm(tried, axis=1) > OFF_MIDDLE)
        found = np.concatenate([found, tried[is_free]])
    return found[: spec.photographs]


def _directions(rig: str, count: int) -> np.ndarray:
    """Unit vectors [count, 3] from the middle to the cameras."""
    if rig == "sphere":
        return np.roll(sphere_points(count), -HELD_OUT_EVERY // 2, axis=0)  # no held-out view is at a pole
    share = np.arange(count) / count
    turns = 2.0 * np.pi * share if rig == "walk" else FRONT * (2.0 * share - 1.0) - 0.5 * np.pi
    heights = np.array(WALK_HEIGHTS)[np.arange(count) % len(WALK_HEIGHTS)]
    found = np.stack([np.cos(turns), np.sin(turns), heights], axis=1)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


BLUE, GREEN, RED = (0.4, 0.55, 0.7), (0.4, 0.6, 0.4), (0.5, 0.22, 0.2)
CATALOGUE = (
    SceneSpec("jug", "jug", photographs=48, has_points=True),
    SceneSpec("vase_plain", "vase", "plain", (0.75, 0.72, 0.66), backdrop="grey", size=(300, 300)),
    SceneSpec("vase_grey", "vase", "plain", (0.5, 0.5, 0.5), backdrop="grey", photographs=24, size=(240, 200), seed=1),
    SceneSpec("frame_thin", "frame", "noise", photographs=60, size=(400, 400), cells=200),
    SceneSpec("bowl_concave", "bowl", "noise", BLUE, backdrop="grey", photographs=40, size=(320, 240)),
    SceneSpec("blob_shiny", "blob", "noise", RED, gloss=1.0, photographs=50, size=(300, 300)),
    SceneSpec("room_inside", "room", "noise", rig="inside", photographs=100, size=(480, 360), has_masks=False),
    SceneSpec("crates_exposure", "crates", "checker", backdrop="grey", exposure=0.5, size=(320, 320)),
    SceneSpec("blob_poses_off", "blob", "noise", GREEN, photographs=40, size=(400, 300), pose_error=0.3, seed=1),
    SceneSpec("crates_few_large", "crates", "noise", photographs=12, size=(1600, 1200), seed=1),
    SceneSpec("jug_on_table", "jug", backdrop="table", rig="walk", size=(400, 300), has_masks=False),
    SceneSpec("crates_front", "crates", backdrop="table", rig="front", photographs=24, size=(480, 640), seed=2),
)
# Relief on a textured ground, with and without masks, by seed; run where they are asked for.
STONE = SceneSpec("stone", "stone", "grit", backdrop="table", rig="walk", photographs=24, size=(800, 800), cells=480)
RELIEF = tuple(replace(STONE, name=f"stone_{seed}", seed=seed) for seed in (7, 8))
# The scenes of the quick form: textured and plain with masks, with changing exposure, and without masks.
SMALL = {"size": (100, 100), "cells": 96, "photographs": 16}
QUICK = (
    replace(CATALOGUE[0], **SMALL),
    replace(CATALOGUE[1], **SMALL),
    replace(CATALOGUE[2], **SMALL, name="vase_open", has_masks=False),
    replace(CATALOGUE[7], **SMALL, exposure=0.15),
)
