"""Camera geometry against OpenCV's decomposition, reprojection and hand-computed cases."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rigs import project
from scipy.spatial.transform import Rotation

from data.cameras import (
    camera_rays,
    decompose_projection,
    image_pixels,
    interpolate_pose,
    pixels_to_rays,
    unit_sphere_span,
)

SEEDS = st.integers(0, 2**32 - 1)


def random_camera(seed):
    """K with skew and a pose, over the ranges real cameras have."""
    rng = np.random.default_rng(seed)
    focal = 10 ** rng.uniform(1.5, 4.5)
    intrinsics = np.array([[focal, 0.01 * focal, 800.0], [0, focal * rng.uniform(0.5, 2), 600.0], [0, 0, 1]])
    c2w = np.eye(4)
    c2w[:3, :3] = Rotation.random(random_state=seed).as_matrix()
    c2w[:3, 3] = rng.normal(size=3) * 10 ** rng.uniform(-1, 3)
    return intrinsics, c2w


def compose(intrinsics, c2w):
    return intrinsics @ np.linalg.inv(c2w)[:3]


@settings(deadline=None, max_examples=50)
@given(SEEDS, st.sampled_from([1e-250, 1e-9, 0.37, 1.0, 12345.6, 1e9, 1e250]))
def test_decomposition_recovers_the_camera_it_was_composed_of_at_any_positive_scale(seed, scale):
    intrinsics, c2w = random_camera(seed)
    found_intrinsics, found_c2w = decompose_projection(scale * compose(intrinsics, c2w))
    np.testing.assert_allclose(found_intrinsics, intrinsics, rtol=1e-9, atol=1e-9 * intrinsics.max())
    np.testing.assert_allclose(found_c2w[:3, :3], c2w[:3, :3], atol=1e-9)
    np.testing.assert_allclose(found_c2w[:3, 3], c2w[:3, 3], rtol=1e-7, atol=1e-7 * np.abs(c2w[:3, 3]).max())


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_decomposition_is_opencvs_where_opencv_is_well_conditioned(seed):
    projection = compose(*random_camera(seed))
    intrinsics, rotation, centre = cv2.decomposeProjectionMatrix(projection)[:3]
    found_intrinsics, found_c2w = decompose_projection(projection)
    np.testing.assert_allclose(found_intrinsics, intrinsics / intrinsics[2, 2], rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(found_c2w[:3, :3], rotation.T, atol=1e-6)
    np.testing.assert_allclose(found_c2w[:3, 3], (centre[:3] / centre[3])[:, 0], rtol=1e-6, atol=1e-6)


GOOD = compose(*random_camera(0))


@pytest.mark.parametrize(
    ("projection", "reason"),
    [
        (np.zeros((3, 4)), "singular"),
        (GOOD[[0, 1, 1]], "singular"),
        (np.vstack([GOOD[:2], GOOD[0] + 2 * GOOD[1]]), "singular"),
        (np.vstack([GOOD[:2], (GOOD[0] + 2 * GOOD[1]).astype(np.float32)]), "singular"),
        (GOOD * [[1], [1], [0]], "singular"),
        (-GOOD, "mirrored"),
        (GOOD * [1, -1, 1, 1], "mirrored"),
        (GOOD * [1, np.nan, 1, 1], "NaN"),
        (GOOD * [1, 1, 1, np.inf], "infinite"),
        (np.eye(4), "shape"),
    ],
)
def test_matrices_without_a_camera_are_refused_with_the_reason(projection, reason):
    with pytest.raises(ValueError, match=reason):
        decompose_projection(projection)


@pytest.mark.parametrize("seed", range(8))
def test_rank_two_is_seen_through_the_rounding_of_float32(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 4)).astype(np.float32)
    mixed = np.float32(rng.normal()) * first + np.float32(rng.normal()) * second
    with pytest.raises(ValueError, match="singular"):
        decompose_projection(np.stack([first, second, mixed]))


@settings(deadline=None, max_examples=30)
@given(SEEDS)
def test_projecting_any_point_of_a_pixels_ray_gives_the_pixel_back(seed):
    intrinsics, c2w = random_camera(seed)
    rng = np.random.default_rng(seed)
    pixels = rng.uniform(-100, 2000, size=(5, 7, 2))
    origins, directions = pixels_to_rays(pixels, intrinsics, c2w)
    assert origins.shape == directions.shape == (5, 7, 3)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=-1), 1, atol=1e-14)
    found, depth = project(origins + rng.uniform(1, 50, size=(5, 7, 1)) * directions, intrinsics, c2w)
    np.testing.assert_allclose(found, pixels, rtol=1e-6, atol=1e-4)
    assert depth.shape == (5, 7, 1) and (depth > 0).all()


def test_axes_are_x_right_y_down_z_forward_and_pixel_zero_is_a_centre():
    intrinsics = np.array([[100.0, 0, 32], [0, 100, 24], [0, 0, 1]])
    _, directions = pixels_to_rays(np.array([[32, 24], [132, 24], [32, 124]]), intrinsics, np.eye(4))
    root = np.sqrt(0.5)
    np.testing.assert_allclose(directions, [[0, 0, 1], [root, 0, root], [0, root, root]], atol=1e-15)


@pytest.mark.parametrize(
    ("width", "height", "level", "columns", "rows"),
    [
        (5, 3, 1, [0, 1, 2, 3, 4], [0, 1, 2]),
        (5, 4, 2, [0, 4], [0, 3]),
        (9, 9, 3, [0, 4, 8], [0, 4, 8]),
        (5, 3, 4, [0], [0]),
        (2, 2, 100, [0], [0]),
    ],
)
def test_the_grid_spans_first_to_last_pixel_as_published(width, height, level, columns, rows):
    grid = image_pixels(width, height, level)
    assert grid.shape == (len(rows), len(columns), 2) and grid.dtype == np.float64
    np.testing.assert_array_equal(grid[0, :, 0], columns)
    np.testing.assert_array_equal(grid[:, 0, 1], rows)
    assert (grid[..., 0] == grid[:1, :, 0]).all() and (grid[..., 1] == grid[:, :1, 1]).all()


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_the_span_is_two_long_and_centred_on_the_point_nearest_the_origin(seed):
    rng = np.random.default_rng(seed)
    origins, directions = rng.normal(size=(2, 20, 3)) * 3
    near, far = unit_sphere_span(origins, directions)
    np.testing.assert_allclose(far - near, 2, rtol=1e-12)
    middle = origins + (near + far) / 2 * directions
    scale = np.linalg.norm(origins, axis=1) * np.linalg.norm(directions, axis=1)
    assert (np.abs(np.sum(middle * directions, axis=1)) < 1e-12 * scale).all()


def test_the_span_of_unit_directions_covers_the_chord_through_the_unit_sphere():
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(200, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    inside = rng.uniform(-0.5, 0.5, size=(200, 3))
    near, far = unit_sphere_span(inside - 4 * directions, directions)
    steps = np.linspace(0, 8, 801)
    points = (inside - 4 * directions)[:, None] + steps[:, None] * directions[:, None]
    within = np.linalg.norm(points, axis=-1) <= 1
    assert within.any(axis=1).all()
    assert not (within & ((steps < near) | (steps > far))).any()


def test_interpolation_is_the_published_one_in_world_to_camera_coordinates():
    a, b = np.eye(4), np.eye(4)
    b[:3, :3] = Rotation.from_rotvec([0, 0, 1.2]).as_matrix()
    a[:3, 3], b[:3, 3] = [1, 2, 3], [-1, 0, 5]
    w2c = np.linalg.inv(interpolate_pose(a, b, 0.25))
    np.testing.assert_allclose(Rotation.from_matrix(w2c[:3, :3]).as_rotvec(), [0, 0, -0.3], atol=1e-12)
    expected = 0.75 * np.linalg.inv(a)[:3, 3] + 0.25 * np.linalg.inv(b)[:3, 3]
    np.testing.assert_allclose(w2c[:3, 3], expected, atol=1e-12)


def test_camera_rays_are_the_float64_rays_rounded_once_in_row_major_order():
    intrinsics, c2w = random_camera(7)
    grid = image_pixels(6, 4)
    rays = camera_rays(grid, intrinsics, c2w)
    origins, directions = pixels_to_rays(grid.reshape(-1, 2), intrinsics, c2w)
    near, far = unit_sphere_span(origins, directions)
    all_found = (rays.origins, rays.directions, rays.near, rays.far)
    for found, exact in zip(all_found, (origins, directions, near, far), strict=True):
        assert found.dtype == np.float32 and found.flags["C_CONTIGUOUS"]
        np.testing.assert_array_equal(found, exact.astype(np.float32))
    assert len(rays) == 24


def test_the_camera_of_a_coarse_grid_sees_its_pixels_where_the_picture_has_them():
    intrinsics, c2w = random_camera(3)
    grid = image_pixels(41, 31, 4)
    camera = camera_rays(grid, intrinsics, c2w).camera
    assert (camera.width, camera.height) == (10, 7)
    found = pixels_to_rays(np.stack(np.meshgrid(np.arange(10), np.arange(7)), axis=-1), camera.intrinsics, camera.c2w)
    np.testing.assert_allclose(found, pixels_to_rays(grid, intrinsics, c2w), atol=1e-12)
