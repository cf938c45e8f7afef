"""What a surface on a grid is made of: the field, the hull of the masks, the cells."""

from __future__ import annotations

import numpy as np
import pytest
from method_oracles import encode
from rigs import sphere_of_cameras

from data.parsed_scene import SparsePoints
from data.scenes.frustum import Cameras, squared_radii
from data.scenes.sparse import near_plane
from data.scenes.visual_hull import carve_unit_sphere, masked_views
from models.estimators.occupancy import OccupancyGrid
from models.fields.conf import SdfGridConfig
from models.fields.grids import SDFGrid
from models.machine.backend import jt
from models.ops.march import EMPTY, OCCUPIED, SOLID


def field_of(**changed):
    sizes = {"levels": 5, "coarsest": 4, "finest": 32, "log2_rows": 10, "d_hidden": 16, "d_feature": 7}
    return SDFGrid(SdfGridConfig(**(sizes | changed)), np.random.default_rng(3))


def evaluated(field, points):
    with jt.no_grad():
        return field.bind().evaluate(jt.array(points))


def assert_learns(field, loss, width):
    """The slopes of the loss by table and first layer are its difference quotients along them, `width` to either
    side.
    """
    slopes = jt.grad(loss(), [field.table, field.lin0.weight])
    for value, slope in zip((field.table, field.lin0.weight), slopes, strict=True):
        start, length, found = value.numpy().copy(), np.linalg.norm(slope.numpy()), []
        for step in (width, -width, 0):
            value.update(jt.array(start + np.float32(step / length) * slope.numpy()))
            value.start_grad()
            found.append(loss().item())
        assert (found[0] - found[1]) / (2 * width) == pytest.approx(length, rel=0.05)


def test_a_fresh_field_is_about_the_distance_from_a_sphere():
    field = field_of(d_hidden=256, bias=0.4)
    points = np.random.default_rng(0).uniform(-1, 1, (500, 3)).astype(np.float32)
    found = evaluated(field, points)
    radius = np.linalg.norm(points, axis=1)
    assert np.abs(found.sdf.numpy()[:, 0] - (radius - 0.4)).mean() < 0.12
    far = radius > 0.3
    along = (found.gradient.numpy() * points).sum(axis=1) / radius
    assert np.abs(along[far] - 1).mean() < 0.15
    for is_inverted, sign in ((False, 1), (True, -1)):
        field.begin_with_sphere(0.7, is_inverted)
        assert np.abs(evaluated(field, points).sdf.numpy()[:, 0] - sign * (radius - 0.7)).mean() < 0.12


def test_the_field_is_the_papers_whatever_levels_are_read():
    field = field_of()
    rng = np.random.default_rng(1)
    field.table.update(jt.array(rng.normal(0, 0.3, field.table.shape).astype(np.float32)))
    field.lin0.weight.update(jt.array(rng.normal(0, 0.3, field.lin0.weight.shape).astype(np.float32)))
    points = rng.uniform(-1.1, 1.1, (200, 3)).astype(np.float32)
    layers = [(layer.weight.numpy().astype(float), layer.bias.numpy().astype(float)) for layer in field.layers()]
    for active in (1, 3, 5):
        field.active = active
        features, slopes = encode(points.astype(float), field.table.numpy().astype(float), field.sizes)
        (inner, offset), (outer, end) = layers
        pre = np.hstack([points, features]) @ inner.T + offset
        expected = np.log1p(np.exp(np.minimum(100 * pre, 500))) / 100 @ outer.T + end
        slope = (1 / (1 + np.exp(-100 * pre)) * outer[0]) @ inner
        gradient = slope[:, :3] + np.einsum("pc,pca->pa", slope[:, 3:], slopes)
        found = evaluated(field, points)
        with jt.no_grad():
            alone = field.bind().distance(jt.array(points)).numpy()
        np.testing.assert_allclose(found.sdf.numpy(), expected[:, :1], atol=2e-5)
        np.testing.assert_allclose(alone, expected[:, :1], atol=2e-5)
        np.testing.assert_allclose(found.feature.numpy(), expected[:, 1:], atol=2e-5)
        np.testing.assert_allclose(found.gradient.numpy(), gradient, atol=2e-3)


def ball_views(count=30, radius=0.5, size=96):
    """Cameras around a ball at the origin, and its exact masks."""
    c2w = sphere_of_cameras(count, distance=2.5, middle=np.zeros(3))
    focal = 1.1 * size
    intrinsics = np.tile(np.array([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1.0]]), (count, 1, 1))
    y, x = np.mgrid[:size, :size]
    seen = np.hypot(x - size / 2, y - size / 2) < focal * radius / np.sqrt(2.5**2 - radius**2)
    masks = [seen.astype(np.uint8) * 255 for _ in range(count)]
    return Cameras(intrinsics, c2w, np.full((count, 2), float(size))), masks


def radii(cells):
    ticks = (np.arange(cells) + 0.5) * 2 / cells - 1
    return np.sqrt(ticks[:, None, None] ** 2 + ticks[None, :, None] ** 2 + ticks[None, None] ** 2)


def test_the_hull_holds_the_object_and_little_more_than_its_margin():
    (cameras, masks), margin = ball_views(), 0.1
    hull, radius = carve_unit_sphere(masked_views(cameras, masks), 64, margin), radii(64)
    assert hull[radius < 0.5 + margin].all()
    # A cell reaches half its diagonal further, the masks a pixel, and a hull stands off between the views.
    assert not hull[radius > 0.5 + margin + np.sqrt(3) / 64 + 0.03 + 0.08].any()


@pytest.mark.parametrize("count", [8, 40])
def test_one_wrong_mask_of_many_takes_nothing_from_the_hull(count):
    cameras, masks = ball_views(count)
    masks[5] = np.roll(masks[5], 30, axis=1)
    hull = carve_unit_sphere(masked_views(cameras, masks), 32, 0.02)
    assert hull[radii(32) < 0.5].all()


def test_masks_that_say_nothing_leave_the_sphere():
    cameras, masks = ball_views(6)
    for value in (0, 255):
        hull = carve_unit_sphere(masked_views(cameras, [np.full_like(mask, value) for mask in masks]), 32, 0.02)
        np.testing.assert_array_equal(hull, radii(32) < 1)


def test_cells_are_what_a_field_says_within_the_hull():
    hull = radii(16) < 0.9
    occupancy = OccupancyGrid(hull)
    radius = np.linalg.norm(occupancy.centres(), axis=1)
    np.testing.assert_allclose(radius, radii(16)[hull], rtol=1e-6)
    occupancy.update(radius > 0.7, radius < 0.4)
    assert (occupancy.cells[~hull] == EMPTY).all()
    np.testing.assert_array_equal(occupancy.cells[hull] == SOLID, radius < 0.4)
    np.testing.assert_array_equal(occupancy.cells[hull] == OCCUPIED, (radius >= 0.4) & (radius <= 0.7))
    occupancy.open()
    np.testing.assert_array_equal(occupancy.cells == OCCUPIED, hull)


def test_each_cell_of_the_hull_is_in_one_block_of_eight(cells=9):
    occupancy = OccupancyGrid(radii(cells) < 0.9)
    centres, block = occupancy.blocks()
    away = np.abs(occupancy.centres() - centres[block])
    np.testing.assert_allclose(away, occupancy.side / 2, rtol=1e-5)
    assert sorted(set(block)) == list(range(len(centres))) and np.bincount(block).max() == 8
    some = np.arange(len(block)) % 3 == 0
    np.testing.assert_array_equal(occupancy.centres(some), occupancy.centres()[some])
    occupancy.enclose(radii(cells) < 0.5)
    assert len(occupancy.blocks()[1]) == len(occupancy.centres()) < len(block)


def test_way_to_the_hull_is_that_to_its_cells_and_at_least_an_edge():
    ticks = (np.arange(64) + 0.5) / 32 - 1
    hull = sum(np.square(axis) for axis in np.meshgrid(ticks, ticks, ticks)) < 0.4**2
    occupancy = OccupancyGrid(hull)
    points = np.random.default_rng(0).uniform(-1.01, 1.01, (5000, 3)).astype(np.float32)
    away = np.linalg.norm(points, axis=1) - 0.4
    beyond = away > occupancy.side
    found = occupancy.to_hull(points)[:, 0]
    assert found.dtype == np.float32 and found.min() >= occupancy.side * 0.999
    assert np.abs(found - away)[beyond & (np.abs(points).max(axis=1) < 0.98)].max() < 1.5 * occupancy.side
    steps = np.abs(occupancy.to_hull(points + np.float32(1e-3))[:, 0] - found)[beyond]
    assert steps.max() < 1.2 * np.sqrt(3) * 1e-3


def test_table_and_network_learn_from_the_gradient():
    field = field_of()
    points = jt.array(np.random.default_rng(4).uniform(-0.9, 0.9, (64, 3)).astype(np.float32))
    field.lin0.weight.update(field.lin0.weight + 0.1)
    field.lin0.weight.start_grad()

    def loss():
        return (field.bind().evaluate(points).gradient.sqr().sum(dim=1) - 1).sqr().mean()

    assert_learns(field, loss, 1e-3)


def test_what_solid_cells_part_from_outside_is_solid():
    occupancy = OccupancyGrid(squared_radii(32) < 1)
    radius = np.linalg.norm(occupancy.centres(), axis=1)
    is_solid = (radius < 0.7) & (radius > 0.4)
    occupancy.update(np.zeros(len(radius), bool), is_solid)
    points = np.array([[0, 0, 0], [0.3, 0, 0], [0.55, 0, 0], [0.9, 0, 0], [0.99, 0.99, 0.99]])
    kinds = occupancy.cells[occupancy.indices(points)]
    np.testing.assert_array_equal(kinds, [SOLID, SOLID, SOLID, OCCUPIED, EMPTY])
    occupancy.cameras = np.array([[0.1, 0, 0], [3.0, 0, 0]])  # a room, seen from inside
    occupancy.update(np.zeros(len(radius), bool), is_solid)
    assert occupancy.cells[occupancy.indices(points[:1])] == OCCUPIED


def test_the_near_plane_is_found():
    origins = np.array([[2.0, 0, 0], [0, 3.0, 0]])
    assert near_plane(origins, None) == pytest.approx(0.2)
    xyz = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 3)) + [1.2, 0, 0]
    points = SparsePoints(xyz, np.full(400, 3), np.zeros(400), np.zeros((400, 3), np.uint8))
    nearest = np.sort(np.linalg.norm(origins[None] - xyz[:, None], axis=2).min(axis=1))
    assert 0.5 * nearest[0] < near_plane(origins, points) < 0.5 * nearest[10]
    few = points.at(slice(5))
    assert near_plane(origins, few) == pytest.approx(0.2)
