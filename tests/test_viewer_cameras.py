"""The cameras of the viewer: what a click meets, and where each photograph is in their texture."""

import numpy as np
import pytest
from runs import ROOT

from data.scenes.load import load_scene
from models.methods.conf import load_config
from models.viewer.cameras import bases, edges, hit, texture


@pytest.fixture(scope="module")
def scene():
    return load_scene(load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",)).dataset)


def test_a_click_finds_the_photograph_in_front(scene):
    corners, generator = bases(scene, 0.2), np.random.default_rng(0)
    for view in range(scene.n_views):
        u, v = generator.uniform(0.05, 0.95, 2)
        place = corners[view, 0] + u * (corners[view, 1] - corners[view, 0]) + v * (corners[view, 3] - corners[view, 0])
        forward = scene.c2w[view, :3, 2]
        assert hit(corners, place - 0.1 * forward, forward) == view  # from where the camera stands
        assert hit(corners, place + 1e-3 * forward, -forward) == view  # from behind the photograph
        assert hit(corners, scene.c2w[view, :3, 3], -forward) != view
    assert hit(corners, np.zeros(3), np.array([0.0, 0.0, 1e-12])) in (None, *range(scene.n_views))
    apexes = edges(corners, scene.c2w[:, :3, 3])
    assert apexes.shape == (8 * scene.n_views, 2, 3) and np.isfinite(apexes).all()


def test_each_photograph_has_its_place_in_the_texture(scene):
    picture, places = texture(scene)
    height, width = picture.shape[:2]
    for view, image in enumerate(scene.images):
        (left, top), (right, bottom) = places[view, [0, 2]] * (width, -height) + (0, height)
        seen = picture[int(top) : int(bottom) + 1, int(left) : int(right) + 1]
        middle = seen.shape[0] // 2, seen.shape[1] // 2
        there = image[int(image.shape[0] * 0.5), int(image.shape[1] * 0.5)]
        scale = 255 if there.dtype.kind == "f" else 1
        assert np.abs(seen.mean((0, 1)) - scale * image.mean((0, 1))).max() < 2
        assert np.abs(seen[middle].astype(float) - scale * there.astype(float)).max() < 60
