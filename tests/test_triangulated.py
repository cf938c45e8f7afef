"""SfM points of scenes that have cameras but no points: on the surface, of training photographs, or none."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from rendered_photographs import off_walls, walls
from scipy.spatial.transform import Rotation
from synthetic_scene import dataset_config

from data.parsed_scene import SparsePoints
from data.prepare import adjust as module
from data.prepare.adjust import LEAST_TRACKS
from data.scenes import preprocess as scenes

CONF = replace(dataset_config("."), roi="0 0 0 1.5")

preprocess = partial(scenes.preprocess, find_points=module.triangulated)


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    return walls(tmp_path_factory.mktemp("walls"))


def test_the_points_lie_on_the_surface_and_the_cameras_stay(parsed):
    scene = preprocess(parsed, parsed.images, replace(CONF, downscale=2))
    in_world = scene.points.xyz @ scene.scene_to_world[:3, :3].T + scene.scene_to_world[:3, 3]
    assert len(scene.points.xyz) > 200 and np.median(off_walls(in_world)) < 0.01
    assert (scene.points.n_views >= 2).all() and scene.points.error.max() <= 2
    plain = preprocess(parsed, parsed.images, replace(CONF, downscale=2), find_points=None)
    np.testing.assert_array_equal(scene.c2w, plain.c2w)
    assert plain.points is None and f"{len(scene.points.xyz)} SfM points triangulated" in scene.notes[-2]


def test_points_of_the_format_and_scenes_with_masks_stay(parsed, tmp_path):
    own = SparsePoints(np.zeros((1, 3)), np.array([2]), np.array([0.5]), np.zeros((1, 3), np.uint8))
    assert len(preprocess(replace(parsed, points=own), parsed.images, CONF).points.xyz) == 1
    masked = tuple(replace(image, mask_path=image.path) for image in parsed.images)
    assert preprocess(parsed, masked, CONF).points is None


def test_held_out_photographs_give_no_points_and_of_many_some_are_used(parsed, monkeypatch):
    training = preprocess(parsed, parsed.images[1:], CONF)
    assert f"from {len(parsed.images) - 1} photographs" in training.notes[-2]
    with monkeypatch.context() as patch:
        patch.setattr(module, "matched", None)
        assert preprocess(parsed, parsed.images[:1], CONF, training=training).points is None
    monkeypatch.setattr(module, "MOST_IMAGES", 4)
    scene = preprocess(parsed, parsed.images, replace(CONF, roi="", camera_outside_sphere=False))
    assert "from 4 photographs" in scene.notes[-2]
    assert "SfM points" in scene.notes[-1] and np.linalg.norm(scene.scene_to_world[:3, 3]) < 1


def test_wrong_cameras_and_single_photographs_have_no_points(parsed):
    turns = np.tile(np.eye(4), (len(parsed.images), 1, 1))
    turns[:, :3, :3] = Rotation.from_rotvec(0.1 * np.random.default_rng(0).normal(size=(len(turns), 3))).as_matrix()
    wrong = [replace(image, c2w=image.c2w @ turn) for image, turn in zip(parsed.images, turns, strict=True)]
    for images in (tuple(wrong), parsed.images[:1]):
        scene = preprocess(parsed, images, CONF)
        assert scene.points is None
        assert scene.notes[-2].startswith("no SfM points") and f"{LEAST_TRACKS} are needed" in scene.notes[-2]
