"""Verification of cameras by their photographs: correct cameras pass, any wrong ones are reported."""

from dataclasses import replace

import numpy as np
import pytest
import rendered_photographs as rendered
from scipy.spatial.transform import Rotation

from data.parsed_scene import MASK_HALF, WorldFrame
from data.prepare.inspection.epipolar import cameras, pair_distances
from data.prepare.sfm.reconstruct import ESTIMATED_CENTRES
from data.scenes.scene import Scene
from models.results.report.reconstruction import trust

COUNT = 12


@pytest.fixture(scope="module")
def corner():
    """Photographs of a textured corner and the cameras they were rendered with."""
    poses, surfaces = rendered.poses(COUNT), rendered.textures(1)
    middle = (rendered.WIDTH - 1) / 2, (rendered.HEIGHT - 1) / 2
    intrinsics = np.array([[rendered.FOCAL, 0, middle[0]], [0, rendered.FOCAL, middle[1]], [0, 0, 1.0]])
    images, named = tuple(rendered.render(pose, surfaces) for pose in poses), tuple(f"{i}.png" for i in range(COUNT))
    views = {"image_names": named, "images": images, "c2w": poses, "intrinsics": np.tile(intrinsics, (COUNT, 1, 1))}
    box = {"scene_to_world": np.eye(4), "bbox_min": -np.ones(3), "bbox_max": np.ones(3)}
    return Scene(name="corner", masks=None, **views, **box)


def median_distance(scene):
    """The median over pairs of views, in pixels of the reduced pictures; NaN without matches."""
    pairs = pair_distances(scene)[0]
    return np.median([pair.pixels for pair in pairs]) if pairs else np.nan


def first(scene, count):
    """Its first cameras and photographs."""
    short = {name: getattr(scene, name)[:count] for name in ("images", "image_names", "intrinsics", "c2w")}
    return replace(scene, **short)


def without(scene, view):
    """One photograph removed: from there on each has the camera of the one before."""
    images, names = (each[:view] + each[view + 1 :] for each in (scene.images, scene.image_names))
    return replace(first(scene, COUNT - 1), images=images, image_names=names)


def turned(scene, degrees):
    """Each camera turned about an axis of its own."""
    axes = np.random.default_rng(0).normal(size=(scene.n_views, 3))
    vectors = np.deg2rad(degrees) * axes / np.linalg.norm(axes, axis=1, keepdims=True)
    poses = scene.c2w.copy()
    poses[:, :3, :3] = poses[:, :3, :3] @ Rotation.from_rotvec(vectors).as_matrix()
    return replace(scene, c2w=poses)


WRONG = {
    "shifted from the first on": lambda scene: without(scene, 0),
    "in OpenGL's axes": lambda scene: replace(scene, c2w=scene.c2w @ np.diag([1.0, -1, -1, 1])),
    "mirrored": lambda scene: replace(scene, c2w=np.diag([1, 1, -1.0, 1]) @ scene.c2w @ np.diag([1, 1, -1.0, 1])),
    "world to camera": lambda scene: replace(scene, c2w=np.linalg.inv(scene.c2w)),
    "turned by two degrees": lambda scene: turned(scene, 2),
    "in another order": lambda scene: replace(scene, c2w=scene.c2w[np.random.default_rng(1).permutation(COUNT)]),
}


@pytest.mark.slow
def test_right_cameras_are_good_in_any_world(corner):
    finding = cameras(corner)
    assert finding.verdict == "good", finding
    assert median_distance(corner) < 0.4
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = Rotation.from_rotvec([0.3, -1, 2]).as_matrix(), [3, -4, 5]
    assert median_distance(replace(corner, c2w=matrix @ corner.c2w)) == pytest.approx(median_distance(corner), rel=1e-6)


@pytest.mark.slow
def test_cameras_of_crops_without_their_centres_are_not_good(corner):
    frame = WorldFrame("", limit=ESTIMATED_CENTRES.format("a.jpg and b.jpg"))
    finding = cameras(replace(corner, frame=frame))
    assert finding.verdict == "fair" and "the centres of cropped photographs are estimated: a.jpg and b" in finding.line
    words = "cameras may be turned by two degrees, and the shape distorted: use the uncropped photographs"
    assert finding.consequence == words and frame.limit.endswith(f"; {words}")
    assert trust({"points_missing": 0.0}, frame)[0] == frame.limit


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrong_cameras_are_bad_whatever_their_cause(corner, name):
    finding = cameras(WRONG[name](corner))
    assert finding.verdict == "bad" and "contradicted: view" in finding.figure, finding


@pytest.mark.slow
def test_the_one_wrong_camera_is_named(corner):
    poses = corner.c2w.copy()
    poses[5, :3, :3] = poses[5, :3, :3] @ Rotation.from_rotvec([0, 0.1, 0]).as_matrix()
    finding = cameras(replace(corner, c2w=poses))
    assert finding.verdict == "fair" and finding.figure.endswith("contradicted: view 5 (5.png)")


@pytest.mark.parametrize("count", [1, 2])
def test_where_nothing_matches_nothing_is_said_but_that(corner, count):
    flat = first(replace(corner, images=tuple(np.full_like(image, 90) for image in corner.images)), count)
    finding = cameras(flat)
    assert finding.verdict == "fair" and finding.figure.startswith("0 of ")
    assert np.isnan(median_distance(flat))


def test_outside_a_mask_nothing_is_matched(corner):
    masks = tuple(np.full(image.shape[:2], MASK_HALF, np.uint8) for image in corner.images)
    assert np.isnan(median_distance(replace(corner, masks=masks)))
