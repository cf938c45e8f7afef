"""Numbers that a file may hold and float32 does not: each gets a sentence, none a NaN or a black picture."""

import dataclasses
import json

import numpy as np
import pytest
from broken_scenes import CAMERAS, WRITERS, edit, frame
from runs import ROOT
from synthetic_scene import dataset_config

from data.cameras import mean_up
from data.errors import UserError
from data.prepare.inspection.overview import side_views
from data.prepare.load import load_scene
from models.conf import load_config
from models.results.camera_paths import from_file, orbit


@pytest.fixture(scope="module")
def scene():
    return load_scene(load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",)).dataset)


def refusal(folder, **settings):
    with pytest.raises(UserError) as caught:
        load_scene(dataset_config(folder, **settings))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def places(of):
    """Every entry of the cameras' places [3], replaced by a function of it."""

    def change(content):
        for entry in content["frames"]:
            for axis, row in enumerate(entry["transform_matrix"][:3]):
                row[3] = of(row[3], axis)

    return edit(change)


SCENES = [
    (frame(fl_x=None, fl_y=None, camera_angle_x=5e-324), "camera_angle_x is"),
    (frame(fl_x=1e40, fl_y=1e40), "view_2.png cannot be used: its focal length of 1e+40 pixels is too long"),
    (frame(fl_x=1e-40, fl_y=1e-40), "1e-40 pixels is too short"),
    (edit(lambda c: c["frames"][2]["transform_matrix"][0].__setitem__(3, 1e39)), "frame 2"),
    (places(lambda value, axis: value + 1e13 * (axis == 0)), "too far for the precision of float64"),
    (places(lambda value, axis: value * 1e-30), "region of interest"),
    (frame(w=1e300, h=1e300), "w is 1e+300"),
]


@pytest.mark.parametrize(("change", "words"), SCENES)
def test_a_camera_file_of_extreme_numbers_gets_its_sentence(change, words, tmp_path):
    WRITERS["ngp"](tmp_path)
    change(tmp_path / CAMERAS["ngp"])
    assert words in refusal(tmp_path)


def test_a_camera_path_of_extreme_numbers_gets_its_sentence(scene, tmp_path):
    for x, scale, words in ((1e39, 1, "radii from the unit sphere, beyond 100000"), (0, 1e200, "contains no rotation")):
        pose = np.diag([scale, scale, scale, 1.0])
        pose[0, 3] = x
        keys = [{"fov": 45, "camera_to_world": pose.tolist()}] * 2
        (tmp_path / "way.json").write_text(json.dumps({"keys": keys, "seconds": 1, "fps": 4}))
        with pytest.raises(UserError, match=rf"keys\[0\].*{words}"):
            from_file(tmp_path / "way.json", scene)


def test_cameras_whose_ups_cancel_out_have_an_orbit_and_an_overview(scene):
    poses = np.repeat(scene.c2w[:1], 4, axis=0)
    turns = np.array([[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]], [[0, 1], [-1, 0]]], float)
    poses[:, :3, :2] = poses[:, :3, :2] @ turns
    assert np.abs(poses[:, :3, 1].mean(axis=0)).max() < 1e-15
    path = orbit(dataclasses.replace(scene, c2w=np.resize(poses, scene.c2w.shape)), 1.0, 8.0)
    for shot in path.shots:
        assert np.allclose(shot.c2w[:3, :3].T @ shot.c2w[:3, :3], np.eye(3))
    assert np.isfinite([axes for _, axes in side_views(poses)]).all()
    assert np.allclose(np.linalg.norm(mean_up(poses)), 1)
