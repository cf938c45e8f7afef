"""Undistorted images: projections of world points, and that no pixel outside the original is filled."""

import numpy as np
import pytest

from data.parsed_scene import Lens
from data.scenes.undistort import Undistorter, fitted, resized

K = np.array([[210.0, 0, 83], [0, 205, 61], [0, 0, 1]])
SIZE = (160, 120)
LENSES = {
    "barrel": Lens(K, (-0.25, 0.05, 0.0, 0.0), size=SIZE),
    "decentred": Lens(K, (0.05, -0.08, 0.01, -0.012), size=SIZE),
    "fisheye": Lens(K, (0.05, -0.02, 0.01, 0.0), is_fisheye=True, size=SIZE),
}


def distorted(lens, points):
    """Pixels [P, 2] of camera-frame points by the formulas of the model, written out."""
    x, y = (points[:, :2] / points[:, 2:]).T
    r2 = x * x + y * y
    if lens.is_fisheye:
        theta = np.arctan(np.sqrt(r2))
        ratio = theta * (1 + theta[:, None] ** (2, 4, 6, 8) @ lens.distortion) / np.maximum(np.sqrt(r2), 1e-12)
        x, y = x * ratio, y * ratio
    else:
        k1, k2, p1, p2 = lens.distortion
        radial = 1 + k1 * r2 + k2 * r2 * r2
        twice = 2 * x * y
        x, y = x * radial + p1 * twice + p2 * (r2 + 2 * x * x), y * radial + p1 * (r2 + 2 * y * y) + p2 * twice
    return np.stack([x * K[0, 0] + K[0, 2], y * K[1, 1] + K[1, 2]], axis=-1)


def spot(pixel):
    """A smooth bright spot [H, W] around a pixel, which interpolation keeps in its place."""
    y, x = np.mgrid[: SIZE[1], : SIZE[0]]
    return np.rint(60000 * np.exp(-((x - pixel[0]) ** 2 + (y - pixel[1]) ** 2) / 18)).astype(np.uint16)


def centroid(picture):
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]]
    weight = picture.astype(float) * (picture > picture.max() * 0.05)
    return np.array([(x * weight).sum(), (y * weight).sum()]) / weight.sum()


@pytest.mark.parametrize("name", LENSES)
def test_points_appear_where_the_pinhole_sees_them_and_all_was_seen(name):
    lens = LENSES[name]
    undistort = Undistorter(lens, SIZE)
    for point in np.array([[0.0, 0, 2], [0.3, 0.2, 2], [-0.4, 0.25, 2], [0.35, -0.3, 2]]):
        seen = centroid(undistort(spot(distorted(lens, point[None])[0])))
        expected = (undistort.intrinsics @ point)[:2] / point[2]
        np.testing.assert_allclose(seen, expected, atol=0.25)  # distortion also deforms the spot a little
    white = undistort(np.full((SIZE[1], SIZE[0], 3), 255, np.uint8))
    assert white.min() > 120  # at worst half a pixel of the border's darkness
    assert undistort.size[0] > 0.7 * SIZE[0] and undistort.size[1] > 0.7 * SIZE[1]


def test_a_reduced_photograph_takes_its_intrinsics_along():
    lens = Lens(K, size=(160, 120))
    np.testing.assert_allclose(fitted(lens, (80, 60)), resized(K, (160, 120), (80, 60)))
    np.testing.assert_array_equal(fitted(Lens(K), (7, 5)), K)
    with pytest.raises(ValueError, match="is 120x160 pixels and its camera 160x120"):
        fitted(lens, (120, 160))


def test_a_lens_that_leaves_little_of_one_side_is_refused():
    intrinsics = np.array([[40.0, 0, 199.5], [0, 40, 9.5], [0, 0, 1]])
    with pytest.raises(ValueError, match="leaves almost nothing"):
        Undistorter(Lens(intrinsics, (1.0, 0.0, 0.0, 0.0), size=(400, 20)), (400, 20))


@pytest.mark.parametrize(
    ("small", "size"), [((518, 392), (4032, 3024)), ((392, 518), (1080, 1440)), ((512, 288), (1920, 1080))]
)
def test_the_cameras_of_a_network_fit_photographs_that_it_reduced_to_its_patches(small, size):
    intrinsics = np.array([[500.0, 0, (small[0] - 1) / 2], [0, 500.0, (small[1] - 1) / 2], [0, 0, 1]])
    found = fitted(Lens(intrinsics, size=small), size)
    assert np.allclose(found[:2, 2], (np.array(size) - 1) / 2)
    assert np.allclose(np.diag(found)[:2], 500.0 * np.array(size) / small)
    with pytest.raises(ValueError, match="and its camera"):
        fitted(Lens(intrinsics, size=small), (size[0], round(0.9 * size[1])))
