"""TSDF fusion of rendered distances of several cameras."""

import numpy as np
import pytest
from rigs import sphere_of_cameras

from data.rays import PinholeCamera
from models.methods.gaussians.model import fused

RADIUS, SIDE, FOCAL, FAR = 0.5, 96, 120.0, 2.5


def cameras():
    """They look at the origin from all sides."""
    middle = (SIDE - 1) / 2
    intrinsics = np.array([[FOCAL, 0, middle], [0, FOCAL, middle], [0, 0, 1.0]])
    poses = sphere_of_cameras(36, distance=FAR, middle=np.zeros(3))
    return [PinholeCamera(intrinsics, pose, SIDE, SIDE) for pose in poses]


def sphere(_):
    """Depth and opacity of a ball at the origin."""
    x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    rays = np.stack([x - (SIDE - 1) / 2, y - (SIDE - 1) / 2, np.full_like(x, FOCAL)], axis=-1) / FOCAL
    square = (rays**2).sum(axis=-1)
    half = FAR**2 - square * (FAR**2 - RADIUS**2)
    depth = (FAR - np.sqrt(np.maximum(half, 0.0))) / square
    return np.where(half > 0, depth, 0.0).astype(np.float32), (half > 0).astype(np.float32)


def crossing(field, direction):
    """Where the field changes its sign along a direction from the middle."""
    steps = np.linspace(0.3, 0.7, 801)
    values = field(steps[:, None] * direction)[:, 0]
    assert values[0] < 0 < values[-1]
    return steps[np.argmax(values > 0)]


@pytest.mark.parametrize("wrong", [None, "fog", "hole"])
def test_a_ball_is_fused_to_its_radius_even_if_a_camera_is_wrong(wrong):
    seen_from = cameras()

    def depth_of(one):
        depth, opacity = sphere(one)
        if one is seen_from[0] and wrong == "fog":
            depth = depth - 0.3
        if one is seen_from[0] and wrong == "hole":
            opacity = np.zeros_like(opacity)
        return depth, opacity

    field = fused(depth_of, tuple(seen_from)).outward
    found = [crossing(field, d / np.linalg.norm(d)) for d in np.random.default_rng(1).normal(size=(40, 3))]
    assert np.abs(np.array(found) - RADIUS).max() < 0.012 and abs(np.median(found) - RADIUS) < 0.003


def test_what_all_see_covered_is_solid_and_what_is_in_no_picture_is_free():
    field = fused(sphere, tuple(cameras())).outward
    assert field(np.zeros((1, 3)))[0, 0] < 0 < field(np.full((1, 3), 30.0))[0, 0]
