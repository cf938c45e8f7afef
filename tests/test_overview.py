"""The outline drawn into a photograph is where the sphere ends, and no scene stops the overview from being drawn."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import rigs

from data.prepare.inspection.overview import OVERVIEW_WIDTH, overview, side_views
from data.scenes.frustum import outline_pixels, sphere_outline


def hits_sphere(pixels, intrinsics, c2w):
    """Whether the ray through each pixel meets the unit sphere in front of the camera: the quadratic's discriminant."""
    rays = np.hstack([pixels, np.ones((len(pixels), 1))]) @ np.linalg.inv(intrinsics).T @ c2w[:3, :3].T
    half_b, squared = rays @ c2w[:3, 3], np.sum(rays**2, axis=1)
    return (half_b**2 - squared * (c2w[:3, 3] @ c2w[:3, 3] - 1) > 0) & (half_b < 0)


def tilted(distance, angle=0.0, seed=0):
    """A camera at `distance` from the sphere's middle, its axis `angle` radians off it."""
    pose = rigs.around(np.random.default_rng(seed).normal(size=(1, 3)), distance, np.zeros(3))[0]
    turn = np.eye(4)
    turn[:3, :3] = cv2.Rodrigues(np.array([0.2 * angle, angle, 0.0]))[0]
    return pose @ turn


@pytest.mark.parametrize("angle", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("distance", [1.5, 20.0])
def test_the_outline_is_the_border_of_what_the_sphere_covers(distance, angle):
    intrinsics = np.array([[300.0, 2.0, 150.0], [0, 330.0, 90.0], [0, 0, 1]])
    pose = tilted(distance, angle)
    (outline,) = outline_pixels(intrinsics, pose)
    assert np.allclose(outline[0], outline[-1], atol=1e-6)  # closed
    middle = outline[:-1].mean(axis=0)
    outward = (outline - middle) / np.linalg.norm(outline - middle, axis=1, keepdims=True)
    assert hits_sphere(outline - 1e-3 * outward, intrinsics, pose).all()
    assert not hits_sphere(outline + 1e-3 * outward, intrinsics, pose).any()
    points = sphere_outline(pose) @ pose[:3, :3].T + pose[:3, 3]  # where rays touch the sphere
    assert np.allclose(np.linalg.norm(points, axis=1), 1)
    assert np.allclose(np.sum(points * (points - pose[:3, 3]), axis=1), 0)


def test_no_outline_where_there_is_none_to_see():
    assert outline_pixels(rigs.INTRINSICS, tilted(0.5)) == []  # from inside
    assert outline_pixels(rigs.INTRINSICS, tilted(3.0, np.pi)) == []  # behind the camera


CLOSE, INSIDE, FAR = [tilted(1.0001), tilted(1.01, 1.5)], [tilted(0.3), np.eye(4)], [tilted(3.0, np.pi), tilted(1e5)]


@pytest.mark.parametrize("poses", [CLOSE, INSIDE, FAR, [tilted(3.0)]])
def test_the_overview_is_drawn_of_every_scene(poses):
    picture = overview(rigs.textured_scene(np.array(poses)))
    assert picture.dtype == np.uint8 and picture.shape[1:] == (OVERVIEW_WIDTH, 3) and 600 < len(picture) < 2500
    assert picture.std() > 5 and (picture == 255).mean() > 0.2


def test_the_overview_takes_points_and_pictures_of_any_size_and_name():
    scene = rigs.textured_scene(rigs.sphere_of_cameras(5, distance=3.0, middle=np.zeros(3)), masks=False)
    images = [image.astype(np.uint16) * 257 for image in scene.images]
    images[2:4] = np.zeros((300, 7, 3), np.uint16), np.zeros((1, 400, 3), np.uint16)
    xyz = np.vstack([rigs.ellipsoid_points(), [[np.nan] * 3, [1e300] * 3, [0.0] * 3]])
    names = ("狐.png", "a" * 300 + ".png", "\n.png", "", "x")
    odd = replace(scene, images=tuple(images), image_names=names, points=rigs.cloud(xyz), name="é" * 200)
    with_points, without = overview(odd), overview(replace(odd, points=None))
    assert with_points.shape == without.shape and (with_points != without).any()


def test_the_three_sides_are_square_to_each_other_and_upright():
    poses = rigs.arc_of_cameras(9, 90.0, middle=np.zeros(3))
    sides = np.stack([axes for _, axes in side_views(poses)])
    sights = np.cross(sides[:, 0], sides[:, 1])
    assert np.allclose(sights @ sights.T, np.eye(3))
    up = -poses[:, :3, 1].mean(axis=0)
    assert all(axes[1] @ up < 0 for axes in sides[:2])  # down the picture is down in the world
    assert sides[0][0] @ poses[0, :3, 0] > 0  # from the front right is right, as the cameras see it
