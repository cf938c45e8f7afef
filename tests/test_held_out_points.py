"""Held-out SfM points: their selection, and their distances from the surface."""

import dataclasses

import numpy as np
import pytest
import trimesh
from rigs import FOCAL, INTRINSICS, SIZE, cloud, sphere_of_cameras

from data.parsed_scene import training_points
from models.evaluation.held_out_points import held_out_points, others, point_metrics
from models.surface.visibility import cameras

DISTANCE = 4.0
POSES = sphere_of_cameras(12, distance=DISTANCE, middle=np.zeros(3))
CAMERAS = cameras(np.tile(INTRINSICS, (len(POSES), 1, 1)), POSES, [SIZE] * len(POSES))
BALL = trimesh.creation.icosphere(5, 0.5)


def on_a_ball(radius, count=400, seed=0):
    """Points [count, 3] at `radius`."""
    points = np.random.default_rng(seed).normal(size=(count, 3))
    return radius * points / np.linalg.norm(points, axis=1, keepdims=True)


def test_distances_in_radii_and_in_pixels_and_the_share_without_a_surface():
    points = np.concatenate([on_a_ball(0.505, 300), on_a_ball(0.6, 100)])
    found = point_metrics(held_out_points(cloud(points), "here", CAMERAS, None), BALL)
    assert (found.points_given, found.points_scored, found.points_from) == (400, 400, "here")
    assert found.points_median == pytest.approx(0.005, abs=5e-4)
    assert found.points_p90 == pytest.approx(0.1, abs=2e-3) and found.points_missing == 0.25
    # Half of the points are nearer to a camera than its distance from the middle, half farther: by half a radius.
    assert found.points_median_px == pytest.approx(0.005 * FOCAL / DISTANCE, rel=0.15)
    assert found.points_p90_px == pytest.approx(0.1 * FOCAL / DISTANCE, rel=0.15)


def test_a_pixel_is_that_of_the_depth_at_which_a_point_is_seen():
    found = held_out_points(cloud(np.array([[0.3, 0.1, -0.2]])), "", CAMERAS[:1], None)
    depth = (found.xyz[0] - POSES[0][:3, 3]) @ POSES[0][:3, 2]
    assert found.pixels == pytest.approx([FOCAL / depth], rel=1e-5)


def test_what_is_no_part_of_the_object_is_not_asked():
    inside, background = on_a_ball(0.5), on_a_ball(1.5, seed=1)
    assert len(held_out_points(cloud(np.concatenate([inside, background])), "", CAMERAS, None).xyz) == len(inside)
    wrong = dataclasses.replace(cloud(inside), error=np.where(np.arange(400) < 40, 30.0, 0.5))
    assert len(held_out_points(wrong, "", CAMERAS, None).xyz) == 360
    left = np.zeros((SIZE[1], SIZE[0]), np.uint8)
    left[:, : SIZE[0] // 2] = 255
    x = ((inside - POSES[0][:3, 3]) @ POSES[0][:3, :3] @ INTRINSICS.T)[:, [0, 2]]
    expected = np.count_nonzero(np.rint(x[:, 0] / x[:, 1]) <= SIZE[0] // 2)  # one pixel outside the mask is tolerated
    assert len(held_out_points(cloud(inside), "", CAMERAS[:1], [left]).xyz) == expected
    nothing = [np.zeros((SIZE[1], SIZE[0]), np.uint8)] * len(CAMERAS)
    none = held_out_points(cloud(inside), "", CAMERAS, nothing)
    assert len(none.xyz) == 0 and point_metrics(none, BALL) is None


def test_every_eighth_point_is_kept_from_the_training():
    points = cloud(on_a_ball(0.5, 101))
    trained = training_points(points)
    assert np.array_equal(others(points, trained).xyz, points.xyz[::8]) and len(trained.xyz) == 101 - 13
    assert len(training_points(cloud(on_a_ball(0.5, 1))).xyz) == 0
