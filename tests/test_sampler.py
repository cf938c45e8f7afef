"""Pixel batches: what they show, in which order, and that their state decides all that follows."""

import json

import numpy as np
import pytest
from rigs import project
from synthetic_scene import dataset_config, write_scene

from data.errors import UserError
from data.pixels import to_float
from data.prepare.load import load_scene
from data.scenes.sampler import PixelSampler


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return load_scene(dataset_config(write_scene(tmp_path_factory.mktemp("scene"), n_views=5).folder))


def sampler(scene, seed=0, batch_size=64):
    return PixelSampler(scene, batch_size, np.random.default_rng(seed))


def seen_pixels(scene, batch):
    """The integer pixels a batch was cast through, from its rays alone."""
    view = batch.view[0]
    points = batch.rays.origins.astype(float) + 3 * batch.rays.directions
    pixels, _ = project(points, scene.intrinsics[view], scene.c2w[view])
    np.testing.assert_allclose(pixels, np.rint(pixels), atol=1e-3)
    return np.rint(pixels).astype(int)


def test_colours_and_masks_are_those_of_the_pixels_the_rays_go_through(scene):
    source = sampler(scene)
    for _ in range(10):
        batch = source.next()
        x, y = seen_pixels(scene, batch).T
        assert x.min() >= 0 and x.max() < 32 and y.min() >= 0 and y.max() < 24
        np.testing.assert_array_equal(batch.rgb, to_float(scene.images[batch.view[0]][y, x]))
        np.testing.assert_array_equal(batch.mask[:, 0], to_float(scene.masks[batch.view[0]][y, x]))


def test_every_photograph_comes_once_before_any_comes_again(scene):
    source, orders = sampler(scene), set()
    for _ in range(6):
        views = np.stack([source.next().view for _ in range(scene.n_views)])
        assert (views == views[:, :1]).all() and sorted(views[:, 0]) == list(range(scene.n_views))
        orders.add(tuple(views[:, 0]))
    assert len(orders) > 1


def test_pixels_are_uniform_with_replacement_borders_included(scene):
    source, counts = sampler(scene, batch_size=24 * 32), np.zeros((24, 32))
    for _ in range(50):
        np.add.at(counts, tuple(seen_pixels(scene, source.next()).T[::-1]), 1)
    # 50 expected per pixel; chi-square over n cells has mean n and deviation sqrt(2 n)
    assert abs(((counts - 50) ** 2 / 50).sum() - counts.size) < 6 * np.sqrt(2 * counts.size)
    assert counts.min() > 0 and counts[[0, -1]].mean() == pytest.approx(50, rel=0.15)


@pytest.mark.parametrize("steps", [0, 5, 13])
def test_the_same_batches_follow_a_state_that_went_through_json(scene, steps):
    first, second = sampler(scene, 1), sampler(scene, 99)
    for _ in range(steps):
        first.next()
    text = json.dumps(first.state())
    second.restore(json.loads(text))
    assert json.dumps(second.state()) == text
    for _ in range(12):
        a, b = first.next(), second.next()
        for name in ("rgb", "mask", "view"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        np.testing.assert_array_equal([*vars(a.rays).values()][:2], [*vars(b.rays).values()][:2])


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(scene):
    source = sampler(scene)
    before = source.state()
    for change, reason in (
        ({"order": [0, 1, 2]}, "made with 3 photographs and the scene .* has 5"),
        ({"order": [0, 1, 2, 3, 3]}, "not a permutation"),
        ({"position": 6}, "damaged"),
        ({"generator": {"bit_generator": "MT19937", "state": {}}}, "random state"),
    ):
        with pytest.raises(UserError, match=reason):
            source.restore(before | change)
        assert source.state() == before


def test_a_scene_without_masks_gives_batches_without(tmp_path):
    batch = sampler(load_scene(dataset_config(write_scene(tmp_path, masks=False, bits=16).folder))).next()
    assert batch.mask is None and 0 < batch.rgb.max() <= 1
