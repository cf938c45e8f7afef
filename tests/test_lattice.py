"""The lattice of mesh extraction against plain loops, and the pixels that a camera shows."""

import itertools

import numpy as np

from data.rays import PinholeCamera
from models.mesh.extraction import DIRECTIONS, mixed_corners, mixed_parents, points_of_parents, steepest

SPACING = np.array([0.1, 0.2, 0.3])


def values_of(seed, count=5):
    return np.random.default_rng(seed).normal(size=(count,) * 3)


def test_cells_are_mixed_where_a_loop_finds_both_signs():
    values = values_of(0) + 2.0
    for width, found in ((1, mixed_corners(values)), (2, mixed_parents(values))):
        for cell in np.ndindex(found.shape):
            part = values[tuple(slice(width * at, width * at + width + 1) for at in cell)]
            assert found[cell] == ((part < 0).any() and (part >= 0).any()), (width, cell)
        assert found.any() and not found.all()


def test_parents_touch_the_points_that_a_loop_finds():
    cells = np.random.default_rng(1).random((3, 3, 3)) < 0.2
    expected = np.zeros((7, 7, 7), bool)
    for i, j, k in np.argwhere(cells):
        expected[2 * i : 2 * i + 3, 2 * j : 2 * j + 3, 2 * k : 2 * k + 3] = True
    np.testing.assert_array_equal(points_of_parents(cells), expected)


def test_the_steepest_slope_is_that_of_a_loop_over_known_neighbours():
    values, known = values_of(2), np.random.default_rng(3).random((5, 5, 5)) < 0.5
    slopes = []
    for here, step in itertools.product(np.argwhere(known), DIRECTIONS):
        there = here + step
        if (there >= 0).all() and (there < 5).all() and known[tuple(there)]:
            slopes.append(abs(values[tuple(there)] - values[tuple(here)]) / np.linalg.norm(step * SPACING))
    assert np.isclose(steepest(values, known, SPACING), max(slopes), rtol=1e-12)
    assert steepest(values, np.zeros_like(known), SPACING) == 0.0
    assert steepest(values, values == values[2, 2, 2], SPACING) == 0.0, "a single point has no slope"


def test_a_camera_shows_pixels_up_to_the_centres_of_its_border():
    camera = PinholeCamera(np.eye(3), np.eye(4), 4, 3)
    pixels = np.array([[0, 0], [3, 2], [-0.1, 1], [3.1, 1], [1, 2.1], [1, -0.1], [1, 1], [np.nan, 1]])
    depth = np.array([1.0, 1, 1, 1, 1, 1, 0, 1])
    assert camera.shows(pixels, depth).tolist() == [True, True] + 6 * [False]
