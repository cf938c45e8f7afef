"""Ray marching through occupied cells, compared with a lookup at every depth of every ray."""

from dataclasses import astuple

import numpy as np
import pytest
from forms import FORMS, OWN_FORMS, in_form

from models.machine.backend import jt
from models.ops.march import EMPTY, LARGEST_BOX, OCCUPIED, SOLID, march, with_empty_boxes
from models.ops.source import NATIVE, REFERENCE


def rays_at(rng, count, jitter=True):
    """Rays towards the cube from outside, and where they meet the unit sphere (or nearly so)."""
    origins = rng.normal(size=(count, 3))
    origins *= 2.5 / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = rng.uniform(-0.7, 0.7, (count, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    middle = -(origins * directions).sum(axis=1, keepdims=True)
    offsets = rng.uniform(0, 1, (count, 1)) if jitter else np.zeros((count, 1))
    return [v.astype(np.float32) for v in (origins, directions, middle - 1.0, middle + 1.0, offsets)]


def ball(cells, radius=0.5):
    x = (np.arange(cells) + 0.5) / cells * 2 - 1
    return (x[:, None, None] ** 2 + x[None, :, None] ** 2 + x[None, None] ** 2 < radius**2).astype(np.uint8)


GRIDS = {
    "ball": lambda rng: ball(32),
    "a few cells": lambda rng: (rng.uniform(size=(20, 20, 20)) < 0.02).astype(np.uint8),
    "solid anywhere": lambda rng: rng.integers(0, 3, (20, 20, 20)).astype(np.uint8),
    "one cell": lambda rng: np.ones((1, 1, 1), np.uint8),
    "all": lambda rng: np.ones((16, 16, 16), np.uint8),
    "none": lambda rng: np.zeros((16, 16, 16), np.uint8),
}


@pytest.mark.parametrize("count", [1, 13, 64])
def test_empty_cells_name_the_largest_empty_box(count):
    rng = np.random.default_rng(0)
    cells = np.zeros((count, count, count), np.uint8)
    cells[tuple(rng.integers(0, count, (3, 4)))] = [OCCUPIED, SOLID, OCCUPIED, SOLID]
    marked = with_empty_boxes(cells)
    for at in (*rng.integers(0, count, (500, 3)), *np.argwhere(cells)):
        boxes = (cells[tuple(slice(x >> n << n, (x >> n) + 1 << n) for x in at)] for n in range(LARGEST_BOX + 1))
        empty = [n for n, box in enumerate(boxes) if not box.any()]
        expected = SOLID + empty[-1] if empty and empty[-1] else cells[tuple(at)]
        assert marked[tuple(at)] == expected
    assert set(np.unique(marked)) >= ({SOLID + LARGEST_BOX} if count == 64 else set())


def assert_same(found, expected):
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def marched(rays, occupied, step, samples, form=NATIVE):
    with in_form(form):
        found = march(*(jt.array(value) for value in (*rays, occupied)), step, samples)
        return [value.numpy() for value in astuple(found)]


@pytest.mark.parametrize("step", [0.007, 0.3])
@pytest.mark.parametrize("name", GRIDS)
def test_the_walk_finds_the_same_samples_to_the_bit(name, step):
    rng = np.random.default_rng(0)
    rays, occupied = rays_at(rng, 150), GRIDS[name](rng)
    budget = 150 * (int(2 / step) + 2)
    native, reference, *others = (marched(rays, occupied, step, budget, form) for form in FORMS)
    in_boxes = [marched(rays, with_empty_boxes(occupied), step, budget, form) for form in FORMS]
    for found in (native, *others, *in_boxes):
        assert_same(found, reference)
    assert (native[0][-1] == 0) == (name == "none")


def test_a_ray_ends_where_it_enters_what_is_solid():
    rays, occupied = rays_at(np.random.default_rng(3), 200), ball(32, 0.6) + ball(32, 0.4)
    opened = marched(rays, np.minimum(occupied, 1), 0.01, 40000)
    offsets, kept, ray_of, depths, points, _ = marched(rays, occupied, 0.01, 40000)
    assert kept[0] == 200 and 0 < offsets[-1] < 0.6 * opened[0][-1]
    x, y, z = np.floor((points[: offsets[-1]] + 1) * 16).astype(int).T
    assert (occupied[x, y, z] == 1).all()
    for ray in range(200):  # what is left are the first of the ray's samples
        mine, all_of_them = (each[3][each[0][ray] : each[0][ray + 1], 0] for each in ((offsets, 0, 0, depths), opened))
        np.testing.assert_array_equal(mine, all_of_them[: len(mine)])


def test_samples_lie_in_occupied_cells_a_step_apart_and_know_their_ray():
    rays, occupied = rays_at(np.random.default_rng(1), 80), ball(32)
    offsets, kept, ray_of, depths, points, views = marched(rays, occupied, 0.02, 8000)
    used = offsets[-1]
    assert kept[0] == 80 and 0 < used < 8000
    np.testing.assert_array_equal(ray_of[:used], np.repeat(np.arange(80), np.diff(offsets)))
    expected = rays[0][ray_of[:used]] + rays[1][ray_of[:used]] * depths[:used]
    np.testing.assert_array_equal(points[:used], expected)
    np.testing.assert_array_equal(views[:used], rays[1][ray_of[:used]])
    x, y, z = np.floor((points[:used] + 1) * 16).astype(int).T
    assert (occupied[x, y, z] == 1).all()
    steps = (depths[:used] - rays[2][ray_of[:used]]) / 0.02 - rays[4][ray_of[:used]]
    assert np.abs(steps - np.round(steps)).max() < 1e-2
    for value in (ray_of, depths, points, views):
        assert (value[used:] == 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_ray_beyond_the_budget_is_left_out_whole_as_those_after_it(form):
    rays, occupied = rays_at(np.random.default_rng(2), 30), np.ones((8, 8, 8), np.uint8)
    whole, *_ = marched(rays, occupied, 0.05, 5000)
    for budget, rays_kept in ((whole[11], 11), (whole[12] - 1, 11), (5, 0)):
        offsets, kept, ray_of, *_ = marched(rays, occupied, 0.05, int(budget), form)
        assert kept[0] == rays_kept and len(ray_of) == budget
        np.testing.assert_array_equal(offsets, np.minimum(whole, whole[rays_kept]))


@pytest.mark.parametrize("form", OWN_FORMS)
@pytest.mark.parametrize("distance", [0.9, 40.0])
def test_rays_that_hardly_move_along_an_axis_meet_faces_as_samples_do(distance, form):
    """The rounded place of a sample reaches a face long before the exact one."""
    rng = np.random.default_rng(6)
    count = 300
    blocks = rng.choice(np.array([EMPTY, OCCUPIED, SOLID], np.uint8), (8, 8, 8), p=[0.8, 0.18, 0.02])
    occupied = np.kron(blocks, np.ones((8, 8, 8), np.uint8))
    origins, directions = rng.uniform(-0.8, 0.8, (count, 3)), rng.normal(size=(count, 3))
    axes = np.array([rng.permutation(3) for _ in range(count)])
    along, slow = axes[:, :1], axes[:, 1:]
    face = np.round(np.take_along_axis(origins, slow, 1) * 4) / 4  # of blocks
    np.put_along_axis(origins, slow, face + rng.choice([0, 1e-7, -1e-7, 4e-8, -4e-8], (count, 2)), 1)
    np.put_along_axis(directions, slow, rng.choice([0, 1e-7, -1e-7, 4e-8, -1e-9, 1e-5], (count, 2)), 1)
    sign = rng.choice([-1.0, 1.0], (count, 1))
    np.put_along_axis(origins, along, -distance * sign, 1)
    np.put_along_axis(directions, along, sign, 1)
    bounds = np.full((count, 1), max(distance - 1, 0)), np.full((count, 1), distance + 1), np.full((count, 1), 0.5)
    rays = [value.astype(np.float32) for value in (origins, directions, *bounds)]
    found, expected = (marched(rays, with_empty_boxes(occupied), 0.02, 60000, each) for each in (form, REFERENCE))
    assert_same(found, expected)
    assert 3000 < expected[0][-1] < 25000


def test_a_ray_without_an_end_comes_to_one_with_any_number_of_threads(openmp_threads):
    rays, found = rays_at(np.random.default_rng(4), 1000), []
    rays[3][:2] = np.inf
    for threads in (1, 2, 3):
        openmp_threads(threads)
        found.append(marched(rays, ball(64), 0.02, 20000))
        assert_same(found[-1], found[0])
    assert found[0][1] > 2 and found[0][0][2] > 0
