"""Depth maps by plane sweep and their fusion, on images drawn from formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rendered_photographs import INTRINSICS, RADIUS, SIZE, drawn, ring, scene_of, solid_texture, sphere_depth
from synthetic_scene import look_at

from data.prepare import fused_depth as fusion
from data.prepare.fused_depth import DepthMaps, fused_depth, swept
from data.scenes.frustum import Cameras


def neighbouring(count):
    """The views beside each view, -1 where there are fewer than four."""
    order = np.argsort(np.abs(np.subtract.outer(np.arange(count), np.arange(count))), axis=1)[:, 1:5]
    return np.pad(order, ((0, 0), (0, 4 - order.shape[1])), constant_values=-1)


def sweep(cameras, paint=solid_texture, sources=None, far=4.0):
    images, count = [drawn(pose, paint) for pose in cameras.c2w], len(cameras.c2w)
    sources = neighbouring(count) if sources is None else sources
    return swept(images, cameras, sources, np.full(count, 2.0), np.full(count, far))


@pytest.fixture(scope="module")
def maps():
    return sweep(ring(6))


def test_the_depth_of_a_textured_sphere_is_found(maps):
    for view, depth in enumerate(maps.depth):
        true, known = sphere_depth(maps.cameras.c2w[view]), depth > 0
        assert known[true > 0].mean() > 0.7
        assert known[true == 0].mean() < 0.06  # a window reaches beyond the outline
        error = np.abs(depth - true)[known & (true > 0)]
        assert np.median(error) < 0.006 and np.quantile(error, 0.95) < 0.03


def test_points_project_back_to_their_pixels(maps):
    points = maps.points(2)
    z, there, is_within = maps.at(2, points)
    assert len(points) == (maps.depth[2] > 0).sum() and is_within.all()
    np.testing.assert_allclose(z, there, rtol=1e-5)
    z, there, is_within = maps.at(2, maps.cameras.c2w[2, :3, 3] - maps.cameras.axes[2][None])
    assert z[0] < 0 and there[0] == 0 and not is_within[0]


def test_reduced_photographs_give_the_same_depths(maps):
    """Photographs of four times the size, reduced to twice by the program's rule for pixel centres."""
    cameras = maps.cameras
    images = [np.kron(drawn(pose), np.ones((4, 4, 1), np.uint8)) for pose in cameras.c2w]
    enlarge = np.array([[4, 0, 1.5], [0, 4, 1.5], [0, 0, 1]])  # x' + 0.5 = 4 (x + 0.5)
    large = Cameras(enlarge @ cameras.intrinsics, cameras.c2w, cameras.sizes * 4)
    found = swept(images, large, neighbouring(6), np.full(6, 2.0), np.full(6, 4.0))
    radius = np.linalg.norm(np.concatenate([found.points(view) for view in range(6)]), axis=1)
    assert max(found.depth[0].shape) <= 240 and len(radius) > 5000 and np.median(np.abs(radius - RADIUS)) < 0.005


FLAT = lambda points: np.full(points.shape[:-1], 0.7)  # noqa: E731


@pytest.mark.parametrize("paint", [FLAT, lambda points: np.sin(60 * points[..., 2]) > 0])
def test_without_texture_or_with_stripes_no_depth_is_claimed(paint):
    """Stripes along the motion of the cameras match at any depth."""
    cameras, wrong, all_of_it = ring(6), 0, 0
    level = replace(cameras, c2w=np.stack([look_at(pose[:3, 3] * [1, 1, 0]) for pose in cameras.c2w]))
    for depth, pose in zip(sweep(level, paint).depth, level.c2w, strict=True):
        true = sphere_depth(pose)
        wrong += ((depth > 0) & (true > 0) & (np.abs(depth - true) > 0.1)).sum()
        all_of_it += (true > 0).sum()
    assert wrong < 0.02 * all_of_it


def exact_maps(count=24):
    """Depth maps of the sphere from all sides, from the formula."""
    z = 1 - (2 * np.arange(count) + 1) / count
    turns = np.pi * (3 - np.sqrt(5)) * np.arange(count)
    eyes = np.stack([np.sqrt(1 - z**2) * np.cos(turns), np.sqrt(1 - z**2) * np.sin(turns), z], axis=1)
    poses = np.stack([look_at(3 * eye) for eye in eyes])
    cameras = Cameras(np.repeat(INTRINSICS[None], count, 0), poses, np.full((count, 2), SIZE, np.float64))
    return DepthMaps(cameras, tuple(sphere_depth(pose).astype(np.float32) for pose in poses))


def test_fused_depth_is_the_signed_distance_of_the_sphere():
    fused = fusion.FusedDepth(np.zeros((0, 3), np.float32), 1.0, fusion._signed_distance(exact_maps()))
    points = np.random.default_rng(0).uniform(-1, 1, (4000, 3)).astype(np.float32)
    points = points[np.linalg.norm(points, axis=1) < 1]  # the cameras see all of it
    true = np.linalg.norm(points, axis=1, keepdims=True) - RADIUS
    found, cell = fused.distances(points), 2 / fusion.CELLS
    assert np.abs(found - true)[np.abs(true) < 0.05].max() < 0.6 * cell
    assert np.abs(found - true)[true < 0.1].max() < 2 * cell
    assert (np.sign(found) == np.sign(true))[np.abs(true) > cell].all()  # no view has a depth beside the sphere


def test_only_what_many_depth_maps_see_through_is_free():
    """Two of 24 views that see nothing of the sphere but a wall far behind it do not make a hole."""
    maps = exact_maps()
    for wrong, is_hole in ((2, False), (20, True)):
        depth = tuple(np.full_like(d, 5.0) if view < wrong else d for view, d in enumerate(maps.depth))
        centre = fusion._signed_distance(replace(maps, depth=depth))[31:33, 31:33, 31:33]
        assert (centre > 0).all() == is_hole and (centre < 0).all() != is_hole


def test_a_scene_is_fused_by_its_own_cameras_and_the_same_each_time():
    scene = scene_of(ring(6))
    one, other = fused_depth(scene, 6), fused_depth(replace(scene), 6)
    np.testing.assert_array_equal(one.points, other.points)
    np.testing.assert_array_equal(one.grid, other.grid)
    assert one.points.dtype == np.float32 and 0.05 < one.known < 1
    assert np.median(np.abs(np.linalg.norm(one.points, axis=1) - RADIUS)) < 0.005
    assert np.median(np.abs(one.distances(one.points))) < 0.02
    assert fused_depth(scene_of(ring(6), FLAT), 6) is None  # without texture
    moved = scene.c2w.copy()  # cameras near the centre of a frame whose sphere is hardly within the unit sphere
    moved[:, :3, 3] *= 0.05
    assert fused_depth(replace(scene, c2w=moved), 6) is None
