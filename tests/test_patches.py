"""Patches across photographs: the operation against its definition, and neighbours."""

import cv2
import numpy as np
import pytest
import rigs
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences

from data.scenes.sparse import neighbours
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
    # In the corner of both images, on their last column and row.
    points[3], normals[3], views[3] = (1.055, 0.843, 0.201), (0, 0, -1), (0, 1, -1, -1)
    return points, normals, views.astype(np.int32), cameras(), pictures(rng)


def costs64(points, normals, views, rows, images, centres=None):
    """Costs [N] patch by patch and pair by pair, by homographies of the tangent plane; float64."""
    found = []
    span = np.arange(-LAYOUT.radius, LAYOUT.radius + 1)
    centres = points if centres is None else centres
    for point, normal, (own, *others), centre in zip(points, normals, views, centres, strict=True):
        p, b, o, size = parts(rows[own])
        seen = p @ [*centre, 1]
        u = np.stack(np.meshgrid(span, span), -1).reshape(-1, 2) + seen[:2] / seen[2]
        rays = np.column_stack([u, np.ones(len(u))]) @ b.T
        cosines = rays @ normal / np.linalg.norm(normal) / np.linalg.norm(rays, axis=1)
        is_whole = (cosines < -LAYOUT.grazing).all() and inside(u, size)
        costs = []
        for other in others:
            q, _, place, other_size = parts(rows[max(other, 0)])
            # x = o + ray (n . (p - o)) / (n . ray), so that its image is H u with H linear in the pixel
            plane = np.outer(q[:, :3] @ o + q[:, 3], normal) / (normal @ (point - o)) + q[:, :3]
            there = rays @ plane.T
            v = there[:, :2] / there[:, 2:]
            usable = is_whole and other >= 0 and normal @ (place - point) > 0 and inside(v, other_size)
            cost = 1 - correlation(grey(images[own], u), grey(images[other], v)) if usable else LAYOUT.worst
            costs.append(min(cost, LAYOUT.worst))
        found.append(np.mean(sorted(costs)[: LAYOUT.best]))
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


def correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return (a * b).mean() / np.sqrt(((a**2).mean() + LAYOUT.noise) * ((b**2).mean() + LAYOUT.noise))


def found_in(form, given):
    """Costs [N], and slopes of their sum by points and normals."""
    points, normals, views, rows, images = given
    with in_form(form):
        moved = [jt.array(value.astype(np.float32)) for value in (points, normals)]
        costs = patch_costs(*moved, *map(jt.array, (views, rows.astype(np.float32), images)), LAYOUT)
        return costs.numpy()[:, 0], [value.numpy() for value in jt.grad(costs.sum(), moved)]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_costs_and_slopes_are_those_of_the_definition(given, form):
    points, normals, *fixed = given
    expected = costs64(*given)
    assert 0.2 < (expected < LAYOUT.worst).mean() < 0.9 and expected.min() < 0.5
    costs, slopes = found_in(form, given)
    np.testing.assert_allclose(costs, expected, atol=2e-4)
    # Bilinear pictures have kinks: a few patches step over one.
    for index, found in enumerate(slopes):

        def total(moved, index=index):
            changed = [points, normals]
            changed[index] = moved.reshape(COUNT, 3)
            return costs64(*changed, *fixed, centres=points).sum()

        quotients = central_differences(total, [points, normals][index], step=1e-7).reshape(COUNT, 3)
        assert_grad_close(found, quotients, rtol=2e-2, min_cosine=0.9995)


@pytest.mark.parametrize("form", FORMS)
def test_a_patch_without_a_view_of_its_own_costs_nothing_whatever_it_is(given, form):
    points, normals, views, *rest = given
    views, no_patch = views.copy(), np.arange(COUNT) % 3 == 1
    views[no_patch, 0] = -1
    points, normals = (np.where(no_patch[:, None], np.nan, value) for value in (points, normals))
    costs, slopes = found_in(form, (points, normals, views, *rest))
    np.testing.assert_allclose(costs, np.where(no_patch, 0.0, costs64(*given)), atol=2e-4)
    for found in slopes:
        assert np.isfinite(found).all() and not found[no_patch].any() and found[~no_patch].any()


@pytest.mark.parametrize("with_points", [True, False])
def test_neighbours_are_the_views_beside_and_share_points(with_points):
    poses = rigs.arc_of_cameras(16, 300.0, middle=np.zeros(3))
    points = rigs.ellipsoid_points(300, axes=np.full(3, 0.5), middle=np.zeros(3)) if with_points else None
    for view, row in enumerate(neighbours(rigs.stacked(poses), points, 6)):
        beside = {view - 1, view + 1} & set(range(16))
        assert beside <= set(row[:2].tolist()) and view not in row
        assert (np.abs(row[row >= 0] - view) <= 2).all() and (row == -1).any()  # 20 degrees apart each
    if with_points:
        poses[8:] = rigs.turned_round(poses[8:])
        found = neighbours(rigs.stacked(poses), points, 4)
        assert found[:8].max() < 8 and (found[8:] == -1).all()
