"""The agreement of photographs around vertices: the operation against its definition in float64."""

import numpy as np
import pytest
from forms import FORMS, in_form

from models.machine.backend import jt
from models.ops.agreement import Agreement, agreement

COUNT, VIEWS = 50, 6
LAYOUT = Agreement(offsets=5, others=4, patch=7)


@pytest.fixture(scope="module")
def given():
    """Vertices of a wavy surface below cameras of several sizes; some patches are outside, views missing or equal."""
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-0.6, 0.6, (COUNT, 2)), rng.normal(0, 0.05, COUNT)])
    normals = rng.normal(0, 0.2, (COUNT, 3)) + [0, 0, -1]
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    near = np.argsort(np.linalg.norm(points[:, None] - points[None], axis=2), axis=1)[:, : LAYOUT.patch]
    near[::5, 4:] = -1
    near[7, 2:] = -1  # too small
    cameras, sizes, images, start = [], [], [], 0
    for view in range(VIEWS):
        width, height = 40 + 3 * view, 50 - 2 * view
        place = np.array([0.3 * view - 0.7, 0.1 * view, -2.0])
        intrinsics = np.array([[50.0, 0, width / 2], [0, 50.0, height / 2], [0, 0, 1]])
        cameras.append((intrinsics @ np.column_stack([np.eye(3), -place])).ravel())
        x, y = np.meshgrid(np.arange(width), np.arange(height))
        waves = 145 + 50 * np.sin(0.5 * x + 0.8 * view) + 40 * np.cos(0.7 * y) + rng.normal(0, 12, x.shape)
        images.append(waves.clip(0, 255).astype(np.uint8).ravel())
        sizes.append([width, height, start])
        start += width * height
    views = np.array([rng.permutation(VIEWS)[: LAYOUT.others] for _ in range(COUNT)])
    views[::3, 1] = -1
    views[4] = [-1, 2, -1, -1]
    steps = rng.uniform(0.01, 0.03, (COUNT, 1))
    numbers = [value.astype(np.float32) for value in (points, normals, steps)]
    rest = [np.array(cameras, np.float32), np.array(sizes, np.int32), np.concatenate(images)]
    return [*numbers, near.astype(np.int32), views.astype(np.int32), *rest]


def scores64(points, normals, steps, patches, views, cameras, sizes, images):
    """Scores [N, O], vertex by vertex and pair by pair."""
    points, normals, cameras = (value.astype(float) for value in (points, normals, cameras))
    found = np.full((COUNT, LAYOUT.offsets), -1.0)
    for n in range(COUNT):
        patch = points[patches[n][patches[n] >= 0]]
        away = ((patch - points[n]) ** 2).sum(axis=1)
        weights = np.exp(-away / away.mean()) if len(patch) > 1 else np.ones(1)
        greys = []  # of each view that shows the patch: [O, M]
        for view in views[n][views[n] >= 0]:
            moves = (np.arange(LAYOUT.offsets) - LAYOUT.offsets // 2) * steps[n].astype(float)
            grey = [
                sampled(patch + move * normals[n], cameras[view].reshape(3, 4), sizes[view], images) for move in moves
            ]
            if len(patch) >= 3 and all(one is not None for one in grey):
                greys.append(np.array(grey))
        if len(greys) < max(2, 2 / 3 * (views[n] >= 0).sum()):
            continue
        if max((grey > LAYOUT.clipped).mean(axis=1).max() for grey in greys) > LAYOUT.share:
            continue
        greys = [[unit(one, weights) for one in grey] for grey in greys]
        pairs = np.einsum("kom,lom->klo", greys, greys)
        others = pairs.sum(axis=1) - pairs[range(len(greys)), range(len(greys))]
        order = np.argsort(-(others / (len(greys) - 1)).max(axis=1), kind="stable")
        best = order[: max(2, int(np.ceil(2 * len(greys) / 3)))]
        found[n] = np.mean([pairs[k, m] for i, k in enumerate(best) for m in best[:i]], axis=0)
    return found


def sampled(places, projection, size, images):
    seen = np.column_stack([places, np.ones(len(places))]) @ projection.T
    (x, y), (width, height, start) = (seen[:, :2] / seen[:, 2:]).T, size
    if not ((seen[:, 2] > 0) & (x >= 0) & (y >= 0) & (x <= width - 1) & (y <= height - 1)).all():
        return None
    image = images[start : start + width * height].reshape(height, width).astype(float)
    i, j = np.minimum(x.astype(int), width - 2), np.minimum(y.astype(int), height - 2)
    right, low = x - i, y - j
    above, below = (image[j + k, i] * (1 - right) + image[j + k, i + 1] * right for k in (0, 1))
    return above * (1 - low) + below * low


def unit(grey, weights):
    grey = grey - np.average(grey, weights=weights)
    variance = np.average(grey**2, weights=weights)
    return np.sqrt(weights / weights.sum() / (variance + LAYOUT.noise)) * grey


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_those_of_the_definition(given, form):
    expected = scores64(*given)
    assert 0.3 < (expected[:, 0] > -1).mean() < 0.97 and np.ptp(expected) > 1.0
    with in_form(form):
        scores = agreement(*map(jt.array, given), LAYOUT).numpy()
    np.testing.assert_allclose(scores, expected, atol=5e-4)
