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
def test_decomposition_recovers_the_camera_at_any_positive_scale(seed, scale):
    intrinsics, c2w = random_camera(seed)
    found_intrinsics, found_c2w = decompose_projection(scale * compose(intrinsics, c2w))
    np.testing.assert_allclose(found_intrinsics, intrinsics, rtol=1e-9, atol=1e-9 * intrinsics.max())
    np.testing.assert_allclose(found_c2w[:3, :3], c2w[:3, :3], atol=1e-9)
    np.testing.assert_allclose(found_c2w[:3, 3], c2w[:3, 3], rtol=1e-7, atol=1e-7 * np.abs(c2w[:3, 3]).max())
    published, rotation, centre = cv2.decomposeProjectionMatrix(compose(intrinsics, c2w))[:3]
    np.testing.assert_allclose(found_intrinsics, published / published[2, 2], rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(found_c2w[:3, :3], rotation.T, atol=1e-6)
    np.testing.assert_allclose(found_c2w[:3, 3], (centre[:3] / centre[3])[:, 0], rtol=1e-6, atol=1e-6)


GOOD = compose(*random_camera(0))


NO_CAMERAS = {
    "singular": [np.zeros((3, 4)), GOOD * [[1], [1], [0]]],
    "mirrored": [-GOOD, GOOD * [1, -1, 1, 1]],
    "infinite": [GOOD * [1, 1, 1, np.inf]],
}


def rank_two(seed):
    """A matrix of rank 2 but for the rounding of float32."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 4)).astype(np.float32)
    return np.stack([first, second, np.float32(rng.normal()) * first + np.float32(rng.normal()) * second])


@pytest.mark.parametrize("reason", NO_CAMERAS)
def test_matrices_without_a_camera_are_refused_with_the_reason(reason):
    for projection in (*NO_CAMERAS[reason], *(rank_two(seed) for seed in range(8) if reason == "singular")):
        with pytest.raises(ValueError, match=reason):
            decompose_projection(projection)


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
    ("size_and_level", "columns", "rows"),
    [((5, 4, 2), [0, 4], [0, 3]), ((9, 9, 3), [0, 4, 8], [0, 4, 8]), ((2, 2, 100), [0], [0])],
)
def test_the_grid_spans_first_to_last_pixel_as_published(size_and_level, columns, rows):
    np.testing.assert_array_equal(image_pixels(*size_and_level), np.stack(np.meshgrid(columns, rows), axis=-1))


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


def test_the_camera_of_a_coarse_grid_sees_its_pixels_in_their_places():
    intrinsics, c2w = random_camera(3)
    grid = image_pixels(41, 31, 4)
    camera = camera_rays(grid, intrinsics, c2w).camera
    assert (camera.width, camera.height) == (10, 7)
    found = pixels_to_rays(np.stack(np.meshgrid(np.arange(10), np.arange(7)), axis=-1), camera.intrinsics, camera.c2w)
    np.testing.assert_allclose(found, pixels_to_rays(grid, intrinsics, c2w), atol=1e-12)
