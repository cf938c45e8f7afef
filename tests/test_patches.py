"""Patches across photographs: the operation against its definition, and neighbours."""

import cv2
import numpy as np
import pytest
import rigs
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences

from data.roi.frustum import Cameras
from data.roi.view_selection import neighbours
from models.machine.backend import jt
from models.ops.patches import CAMERA, Patches, patch_costs

VIEWS, HEIGHT, WIDTH, OTHERS, COUNT = 4, 40, 50, 3, 60
LAYOUT = Patches(HEIGHT, WIDTH, OTHERS, radius=3, best=2, worst=0.95)


def pictures(rng):
    """Smooth noise, three fifths of which all share."""
    noise = rng.integers(0, 256, (VIEWS, HEIGHT, WIDTH)).astype(np.float32)
    smooth = [(cv2.GaussianBlur(one, (0, 0), 2.0) - 128) * 5 + 128 for one in noise]
    return np.stack([np.clip(0.6 * smooth[0] + 0.4 * one, 0, 255) for one in smooth]).astype(np.uint8)


def cameras():
    """Side by side, turned a little; the last one is smaller than the others."""
    rows = []
    for view in range(VIEWS):
        turned, _ = cv2.Rodrigues(np.array([0.02 * view, -0.03 * view, 0.05 * view]))
        place = np.array([0.1 * view, 0.05 * view, -3.0])
        intrinsics = np.array([[60.0, 0, WIDTH / 2], [0, 60.0, HEIGHT / 2], [0, 0, 1]])
        projection = intrinsics @ np.column_stack([turned.T, -turned.T @ place])
        size = (WIDTH - 10, HEIGHT) if view == VIEWS - 1 else (WIDTH, HEIGHT)
        rows.append(np.concatenate([projection.ravel(), (turned @ np.linalg.inv(intrinsics)).ravel(), place, size]))
    assert len(rows[0]) == CAMERA
    return np.array(rows)


@pytest.fixture(scope="module")
def given():
    """Points, normals, views, cameras, images; some patches cannot be compared."""
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-1.2, 1.2, (COUNT, 2)), rng.uniform(-0.3, 0.3, COUNT)])
    normals = np.column_stack([rng.normal(0, 0.4, (COUNT, 2)), -np.ones(COUNT)]) * rng.uniform(0.5, 2, (COUNT, 1))
    normals[:3, 2] = 1.0  # from behind
    views = rng.integers(-1, VIEWS, (COUNT, 1 + OTHERS))
    views[:, 0] = np.abs(views[:, 0])
    return points, normals, views.astype(np.int32), cameras(), pictures(rng)


def costs64(points, normals, views, rows, images, sizes, centres=None):
    """Costs [N] patch by patch and pair by pair, by homographies of the tangent plane; float64."""
    found = []
    span = np.arange(-sizes.radius, sizes.radius + 1)
    centres = points if centres is None else centres
    for point, normal, (own, *others), centre in zip(points, normals, views, centres, strict=True):
        p, b, o, size = parts(rows[own])
        seen = p @ [*centre, 1]
        u = np.stack(np.meshgrid(span, span), -1).reshape(-1, 2) + seen[:2] / seen[2]
        rays = np.column_stack([u, np.ones(len(u))]) @ b.T
        cosines = rays @ normal / np.linalg.norm(normal) / np.linalg.norm(rays, axis=1)
        is_whole = (cosines < -sizes.grazing).all() and inside(u, size)
        costs = []
        for other in others:
            q, _, place, other_size = parts(rows[max(other, 0)])
            # x = o + ray (n . (p - o)) / (n . ray), so that its image is H u with H linear in the pixel
            plane = np.outer(q[:, :3] @ o + q[:, 3], normal) / (normal @ (point - o)) + q[:, :3]
            there = rays @ plane.T
            v = there[:, :2] / there[:, 2:]
            usable = is_whole and other >= 0 and normal @ (place - point) > 0 and inside(v, other_size)
            cost = 1 - correlation(grey(images[own], u), grey(images[other], v), sizes.noise) if usable else sizes.worst
            costs.append(min(cost, sizes.worst))
        found.append(np.mean(sorted(costs)[: sizes.best]))
    return np.array(found)


def parts(row):
    return row[:12].reshape(3, 4), row[12:21].reshape(3, 3), row[21:24], row[24:]


def inside(pixels, size):
    return (pixels >= 0).all() and (pixels <= size - 1).all()


def grey(image, pixels):
    x, y = pixels.T
    i, j = np.minimum(x.astype(int), WIDTH - 2), np.minimum(y.astype(int), HEIGHT - 2)
    right, low = x - i, y - j
    image = image.astype(float)
    above, below = (image[j + k, i] * (1 - right) + image[j + k, i + 1] * right for k in (0, 1))
    return above * (1 - low) + below * low


def correlation(a, b, noise):
    a, b = a - a.mean(), b - b.mean()
    return (a * b).mean() / np.sqrt(((a**2).mean() + noise) * ((b**2).mean() + noise))


def on_device(given):
    points, normals, views, rows, images = given
    values = [jt.array(value.astype(np.float32)) for value in (points, normals)]
    return values, [jt.array(views), jt.array(rows.astype(np.float32)), jt.array(images)]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_costs_and_slopes_are_those_of_the_definition(given, form):
    points, normals, views, rows, images = given
    expected = costs64(*given, LAYOUT)
    assert 0.2 < (expected < LAYOUT.worst).mean() < 0.9 and expected.min() < 0.5
    with in_form(form):
        (place, normal), rest = on_device(given)
        costs = patch_costs(place, normal, *rest, LAYOUT)
        np.testing.assert_allclose(costs.numpy()[:, 0], expected, atol=2e-4)
        slopes = [value.numpy() for value in jt.grad(costs.sum(), [place, normal])]
    # Bilinear pictures have kinks: a few patches step over one.
    for index, found in enumerate(slopes):

        def total(moved, index=index):
            changed = [points, normals]
            changed[index] = moved.reshape(COUNT, 3)
            return costs64(*changed, views, rows, images, LAYOUT, centres=points).sum()

        quotients = central_differences(total, [points, normals][index], step=1e-7).reshape(COUNT, 3)
        assert_grad_close(found, quotients, rtol=2e-2, min_cosine=0.9995)


@pytest.mark.parametrize("form", FORMS)
def test_a_patch_without_a_view_of_its_own_costs_nothing_whatever_it_is(given, form):
    points, normals, views, *rest = given
    views, no_patch = views.copy(), np.arange(COUNT) % 3 == 1
    views[no_patch, 0] = -1
    expected = np.where(no_patch, 0.0, costs64(*given, LAYOUT))
    points, normals = (np.where(no_patch[:, None], np.nan, value) for value in (points, normals))
    with in_form(form):
        values, rest = on_device((points, normals, views, *rest))
        costs = patch_costs(*values, *rest, LAYOUT)
        np.testing.assert_allclose(costs.numpy()[:, 0], expected, atol=2e-4)
        slopes = [value.numpy() for value in jt.grad(costs.sum(), values)]
    for found in slopes:
        assert np.isfinite(found).all() and not found[no_patch].any() and found[~no_patch].any()


def test_a_surface_in_its_place_costs_nothing_and_another_does():
    """A textured plane, photographed by homographies."""
    rng, rows = np.random.default_rng(1), cameras()[:3]
    texture = cv2.GaussianBlur(rng.integers(0, 256, (400, 400)).astype(np.float32), (0, 0), 4) * 6 - 640
    images = []
    for row in rows:
        p, *_ = parts(row)
        to_texture = np.array([[100.0, 0, 200], [0, 100, 200], [0, 0, 1]]) @ np.linalg.inv(p[:, [0, 1, 3]])  # z = 0
        images.append(
            cv2.warpPerspective(texture, to_texture, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        )
    images = np.clip(images, 0, 255).astype(np.uint8)
    points = np.column_stack([rng.uniform(-0.6, 0.6, (30, 2)), np.zeros(30)])
    views, up = np.tile(np.int32([0, 1, 2]), (30, 1)), np.tile([0.0, 0, -1], (30, 1))
    layout = Patches(HEIGHT, WIDTH, 2, radius=3, best=2, worst=0.95)

    def cost(points, normals):
        values, rest = on_device((points, normals, views, rows, images))
        return float(patch_costs(*values, *rest, layout).numpy().mean())

    right = cost(points, up)
    assert right < 0.05
    assert cost(points + [0, 0, 0.3], up) > 2 * right and cost(points - [0, 0, 0.3], up) > 2 * right
    assert cost(points, up + [0.8, 0, 0]) > right


@pytest.mark.parametrize("with_points", [True, False])
def test_neighbours_are_the_views_beside_and_share_points(with_points):
    poses = rigs.arc_of_cameras(16, 300.0, middle=np.zeros(3))
    points = rigs.ellipsoid_points(300, axes=np.full(3, 0.5), middle=np.zeros(3)) if with_points else None
    found = neighbours(Cameras(*rigs.stacked(poses)), points, 6)
    for view, row in enumerate(found):
        beside = {view - 1, view + 1} & set(range(16))
        assert beside <= set(row[:2].tolist()) and view not in row
        assert (np.abs(row[row >= 0] - view) <= 2).all() and (row == -1).any()  # 20 degrees apart each


def test_views_that_share_no_points_are_no_neighbours():
    poses = rigs.arc_of_cameras(6, 40.0, middle=np.zeros(3))
    poses[3:] = rigs.turned_round(poses[3:])
    points = rigs.ellipsoid_points(300, axes=np.full(3, 0.5), middle=np.zeros(3))
    found = neighbours(Cameras(*rigs.stacked(poses)), points, 4)
    assert set(found[:3].ravel().tolist()) <= {-1, 0, 1, 2} and (found[3:] == -1).all()
