"""What a surface is measured with: ground truth in another frame or scale is noticed; held-out SfM points."""

import dataclasses

import numpy as np
import pytest
import trimesh
from rigs import FOCAL, INTRINSICS, SIZE, cloud, sphere_of_cameras
from runs import ROOT

from data.errors import UserError
from data.parsed_scene import training_points
from data.rays import PinholeCamera
from models.results.surface_metrics import (
    frame_note,
    held_out_points,
    others,
    point_metrics,
    require_in_region,
    sample_faces,
)

RNG = np.random.default_rng(5)
JUG = trimesh.load(ROOT / "data/demo/ground_truth.ply", process=False)
TRUTH = sample_faces(JUG, 20_000, RNG)[0]
FOUND = sample_faces(JUG, 20_000, RNG)[0] + RNG.normal(0, 0.01, (20_000, 3))
TABLE = RNG.uniform(-4, 4, (10_000, 3)) * [1, 1, 0.01]
TURN = trimesh.transformations.rotation_matrix(2.0, [1, 2, 3])[:3, :3]


def checked(given, found=FOUND, otherwise=None):
    require_in_region(given, "--gt gt.ply", "mend it")
    otherwise = 100 * given + 40 if otherwise is None else otherwise
    return frame_note(found, given, otherwise, "--gt gt.ply", "mend it")


OTHER_FRAMES = (
    (100 * TRUTH, "radii from the centre of the region of interest"),
    (TRUTH + 5.0, "its centre is 8.6"),
    (0.4 * TRUTH + 0.3, "read in the other frame, it is"),
)


def test_another_frame_is_named():
    for given, words in OTHER_FRAMES:
        with pytest.raises(UserError, match="another frame or scale than the scene") as refused:
            checked(given, otherwise=TRUTH)
        assert words in str(refused.value) and str(refused.value).endswith("mend it")


def test_ground_truth_far_from_the_surface_is_scored_with_a_note():
    for given in (TRUTH + [0.25, 0, 0], TRUTH[:, [0, 2, 1]], 0.6 * TRUTH @ TURN.T + 0.1):
        note = checked(given)
        assert note.startswith("--gt gt.ply: is 0.") and note.endswith("another frame: mend it")


SURFACES = {
    "a ball, as a training begins": trimesh.creation.icosphere(4, 0.5).vertices,
    "half of it": FOUND[FOUND[:, 1] > 0],
    "a tenth too large": 1.1 * FOUND,
}


def test_a_wrong_surface_is_scored_and_not_taken_for_another_frame():
    checked(np.concatenate([TRUTH, TABLE]))  # reaches beyond the region
    for name, found in SURFACES.items():
        assert bool(checked(TRUTH, np.asarray(found))) == name.startswith("a ball")


DISTANCE = 4.0
POSES = sphere_of_cameras(12, distance=DISTANCE, middle=np.zeros(3))
CAMERAS = [PinholeCamera(INTRINSICS, pose, *SIZE) for pose in POSES]
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
