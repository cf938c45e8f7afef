"""The region of interest contains the object, excludes the cameras and is equivariant, or raises an error."""

import numpy as np
import pytest
import rigs
from synthetic_scene import similarity

from data.errors import SceneError, UserError
from data.scenes.frustum import enclosing_ball
from data.scenes.region import OUTSIDE_RADII, find_region, parse_roi, require_common_view

RIGS = {"all sides": rigs.sphere_of_cameras(), "half a turn": rigs.arc_of_cameras()}
LARGEST = rigs.AXES.max()  # the radius of the smallest ball around the ellipsoid


def masks_of(poses):
    return [rigs.ellipsoid_mask(pose) for pose in poses]


def region_of(poses, masks=None, points=None):
    return find_region(rigs.stacked(poses), masks, points)


def assert_holds_the_object(region):
    distances = np.linalg.norm(rigs.ellipsoid_points(4000) - region.centre, axis=1)
    assert distances.max() < region.radius <= 1.3 * LARGEST


@pytest.mark.parametrize("poses", RIGS.values(), ids=RIGS)
def test_masks_points_and_pictures_each_give_a_sphere_around_the_object(poses):
    region = region_of(poses, masks_of(poses))
    assert_holds_the_object(region)
    assert "from the visual hull of" in region.how and "without" not in region.how
    inliers, outliers = rigs.ellipsoid_points(600), np.random.default_rng(5).uniform(-6, 6, (400, 3))
    region = region_of(poses, points=rigs.cloud(np.vstack([outliers, inliers])))
    held = np.linalg.norm(inliers - region.centre, axis=1) < region.radius
    assert held.mean() > 0.98 and region.radius < 1.3 * LARGEST and "SfM points" in region.how
    region = region_of(poses)
    # The half angles of the picture: a sphere of radius d sin(angle) about a point at distance d just fits.
    sines = [np.sin(np.arctan(side / 2 / rigs.FOCAL)) for side in rigs.SIZE]
    assert region.radius == pytest.approx(4.0 * np.sqrt(np.prod(sines)), rel=1e-6)
    assert np.allclose(region.centre, rigs.MIDDLE, atol=1e-6)


def test_two_wrong_masks_do_not_spoil_the_hull():
    poses = RIGS["all sides"]
    masks = [np.roll(mask, 25, axis=1) if view in (3, 11) else mask for view, mask in enumerate(masks_of(poses))]
    region = region_of(poses, masks)
    assert_holds_the_object(region)
    assert "without views 3 and 11" in region.how


def test_masks_and_points_that_say_nothing_leave_it_to_the_cameras():
    poses = RIGS["all sides"]
    for masks in ([np.zeros((72, 96), np.uint8)] * 24, [np.full((72, 96), 255, np.uint8)] * 24):
        assert "from the common focus of 24 cameras" in region_of(poses, masks).how
    assert "common focus" in region_of(poses, points=rigs.cloud(np.tile(rigs.MIDDLE, (100, 1)))).how


@pytest.mark.parametrize(("field", "bad"), [("error", 40.0), ("n_views", 2)])
def test_badly_supported_points_are_left_out(field, bad):
    around = rigs.ellipsoid_points(500, axes=np.full(3, 1.6), seed=3)
    points = rigs.cloud(np.vstack([rigs.ellipsoid_points(600), around]))
    getattr(points, field)[600:] = bad
    assert region_of(RIGS["all sides"], points=points).radius < 1.3 * LARGEST


# With masks a cube may fall to the other side by rounding.
@pytest.mark.parametrize(("with_masks", "tolerance"), [(True, 1e-3), (False, 1e-6)])
def test_the_region_moves_with_the_world(with_masks, tolerance):
    poses, xyz = RIGS["all sides"], rigs.ellipsoid_points(900)
    world = similarity(37.0, translation=(500.0, -90.0, 20.0))
    masks, moved = masks_of(poses) if with_masks else None, xyz @ world[:3, :3].T + world[:3, 3]
    here = region_of(poses, masks, rigs.cloud(xyz))
    there = region_of(rigs.moved(poses, world), masks, rigs.cloud(moved))
    expected = world @ [*here.centre, 1.0]
    assert np.linalg.norm(there.centre - expected[:3]) < tolerance * there.radius
    assert there.radius == pytest.approx(37.0 * here.radius, rel=tolerance)


def test_a_camera_that_would_be_inside_is_left_outside_and_named():
    poses = rigs.sphere_of_cameras()
    poses[7, :3, 3] = rigs.MIDDLE + 0.85 * (poses[7, :3, 3] - rigs.MIDDLE) / 4
    points = rigs.cloud(rigs.ellipsoid_points(600))
    region = region_of(poses, points=points)
    distances = np.linalg.norm(poses[:, :3, 3] - region.centre, axis=1)
    assert distances.min() == pytest.approx(OUTSIDE_RADII * region.radius) and distances.argmin() == 7
    assert "shrunk from" in region.how and "view 7" in region.how
    as_found = find_region(rigs.stacked(poses), None, points, cameras_outside=False)  # where it may stand within
    assert_holds_the_object(as_found)
    assert as_found.radius > distances.min() and as_found.how.endswith("; cameras inside: view 7")


WITHIN = rigs.sphere_of_cameras()
WITHIN[7, :3, 3] = rigs.MIDDLE + 0.05
LOST = {
    "in the middle of the object": (WITHIN, 'view 7.*--roi "x y z r"'),
    "in a row": (rigs.row_of_cameras(), "parallel axes"),
    "at one position": (rigs.row_of_cameras(spread=0.0), "at one position"),
    "two looking away": (rigs.turned_round(rigs.around([[1, 0, 0.2], [-1, 0, 0.1]])), "look away from each other"),
    "not finite": (rigs.sphere_of_cameras() * np.nan, "not finite"),
    "overflowing": (rigs.sphere_of_cameras() @ np.diag([1.0, 1, 1, 1e200]), "too large"),
}


@pytest.mark.parametrize("name", LOST)
def test_cameras_with_nothing_in_common_are_told_so_in_one_sentence(name):
    poses, words = LOST[name]
    with pytest.raises(SceneError, match=words) as caught:
        region_of(poses)
    assert "--roi" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["survey", "room"])
def test_of_a_place_the_region_is_around_its_points_and_the_cameras(kind):
    random = np.random.default_rng(0)
    poses, xyz = np.tile(np.diag([1.0, -1, -1, 1]), (30, 1, 1)), random.uniform([-1, -1, 0], [30, 3, 0.5], (900, 3))
    poses[:, :3, 3] = [[index, 1.0, 4.0] for index in range(30)]
    if kind == "room":
        poses = rigs.turned_round(rigs.around(random.normal(size=(30, 3)), distance=0.5))
        xyz = random.normal(size=(900, 3))
        xyz *= 5 / np.abs(xyz).max(axis=1, keepdims=True)
    region = find_region(rigs.stacked(poses), None, rigs.cloud(xyz), cameras_outside=False)
    apart = np.linalg.norm(xyz - region.centre, axis=1)
    assert np.mean(apart < region.radius) > 0.95 and region.radius < 1.4 * apart.max()
    require_common_view(region, rigs.stacked(poses))


def test_an_object_that_the_cameras_look_at_is_not_a_place():
    """From nearly parallel axes, before a wall."""
    wall = np.column_stack([np.full(1500, -8.0), np.random.default_rng(2).uniform(-6, 6, (1500, 2))])
    poses, xyz = rigs.arc_of_cameras(15, 12.0), np.vstack([rigs.ellipsoid_points(600), wall])
    for cameras_outside in (True, False):
        region = find_region(rigs.stacked(poses), None, rigs.cloud(xyz), cameras_outside)
        assert np.linalg.norm(region.centre - rigs.MIDDLE) < 0.3 and 0.8 < region.radius < 3


def test_a_sphere_that_half_of_the_cameras_do_not_show_is_an_error():
    poses = RIGS["all sides"]
    region, turned = region_of(poses), rigs.turned_round(poses)
    require_common_view(region, rigs.stacked(np.concatenate([turned[:5], poses[5:]])))
    with pytest.raises(SceneError, match="12 of 24 cameras look away.*views 0, 1, 2, 3, 4 and 7 more"):
        require_common_view(region, rigs.stacked(np.concatenate([turned[:12], poses[12:]])))


def test_scale_mat_takes_the_unit_sphere_to_the_region_or_is_refused():
    region = parse_roi(" 1,-2, 3e1\t.5 ")
    assert np.allclose(region.scale_mat @ [0, 1, 0, 1], [1, -1.5, 30, 1])
    assert "centre (1, -2, 30), radius 0.5" in region.how
    with pytest.raises(UserError, match="--roi.*centre and the radius"):
        parse_roi("1 2 3 0")


def test_the_enclosing_ball_holds_every_point_and_is_hardly_larger():
    unit = np.random.default_rng(0).normal(size=(200, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    # Antipodes: the ball of radius 3 is the smallest, however many points lie on one side in it.
    points = np.vstack([3.0 * unit, -3.0 * unit, np.tile([2.5, 0, 0], (2000, 1))]) + [5, 6, 7]
    centre, radius = enclosing_ball(points)
    assert np.linalg.norm(points - centre, axis=1).max() <= radius <= 3.03
