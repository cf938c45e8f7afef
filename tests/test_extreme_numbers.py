"""Numbers that a file may hold and float32 does not: each gets a sentence, none a NaN or a black picture."""

import dataclasses
import json

import numpy as np
import pytest
from broken_scenes import CAMERAS, WRITERS, edit, frame
from runs import ROOT
from synthetic_scene import dataset_config, write_scene

from data.cameras import mean_up
from data.errors import UserError
from data.inspection.overview import side_views
from data.parsed_scene import SparsePoints
from data.scenes.load import load_scene
from data.scenes.scene import check_scene
from models.methods.conf import load_config
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
    (frame(fl_x=None, fl_y=None, x_fov=1e-40), "x_fov is 1e-40, too narrow"),
    (frame(fl_x=1e40, fl_y=1e40), "view_2.png cannot be used: its focal length of 1e+40 pixels is too long"),
    (frame(fl_y=1e12), "focal length of 1e+12 pixels is too long"),
    (frame(fl_x=1e-40, fl_y=1e-40), "1e-40 pixels is too short"),
    (edit(lambda c: c["frames"][2]["transform_matrix"][0].__setitem__(3, 1e39)), "frame 2"),
    (places(lambda value, axis: value + 1e39 * (axis == 0)), "puts the camera 1e+39 from the origin"),
    (places(lambda value, axis: value + 1e13 * (axis == 0)), "too far for the precision of float64"),
    (places(lambda value, axis: value * 1e-30), "region of interest"),
    (frame(w=1e300, h=1e300), "w is 1e+300"),
]


@pytest.mark.parametrize(("change", "words"), SCENES)
def test_a_camera_file_of_extreme_numbers_gets_its_sentence(change, words, tmp_path):
    WRITERS["ngp"](tmp_path)
    change(tmp_path / CAMERAS["ngp"])
    assert words in refusal(tmp_path)


@pytest.mark.parametrize(("by", "words"), [(1e39, "from the origin, beyond 1e+15"), (1e-39, "precision of float64")])
def test_poses_and_bounds_of_extreme_numbers_get_their_sentence(by, words, tmp_path):
    WRITERS["llff"](tmp_path)
    table = np.load(tmp_path / CAMERAS["llff"])
    table[:, [3, 8, 13]] *= by
    np.save(tmp_path / CAMERAS["llff"], table)
    assert words in refusal(tmp_path)


def test_points_beyond_float32_get_their_sentence(scene):
    points = SparsePoints(np.array([[0.0, 0, 1e39]]), np.full(1, 5), np.ones(1), np.zeros((1, 3), np.uint8))
    with pytest.raises(UserError, match="SfM points are beyond"):
        check_scene(dataclasses.replace(scene, points=points))


@pytest.mark.parametrize(
    ("fov", "x", "scale", "words"),
    [
        (5e-324, 0, 1, "degrees and must be"),
        (45, 1e39, 1, "radii from the unit sphere, beyond 100000"),
        (45, 0, 1e200, "contains no rotation"),
    ],
)
def test_a_camera_path_of_extreme_numbers_gets_its_sentence(fov, x, scale, words, scene, tmp_path):
    pose = np.diag([scale, scale, scale, 1.0])
    pose[0, 3] = x
    keys = [{"fov": fov, "camera_to_world": pose.tolist()}] * 2
    (tmp_path / "way.json").write_text(json.dumps({"keys": keys, "seconds": 1, "fps": 4}))
    with pytest.raises(UserError, match=words) as caught:
        from_file(tmp_path / "way.json", scene)
    assert "keys[0]" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("transform", "scale"), [(np.eye(4), 1e-40), (1e200 * np.eye(4), 1.0)])
def test_a_transform_of_nerfstudio_of_extreme_numbers_gets_its_sentence(transform, scale, scene, tmp_path):
    content = {"transform": transform[:3].tolist(), "scale": scale}
    (tmp_path / "dataparser_transforms.json").write_text(json.dumps(content))
    way = {"render_width": 8, "render_height": 8, "fps": 4, "seconds": 1}
    way["camera_path"] = [{"fov": 45, "camera_to_world": np.eye(4).ravel().tolist()}] * 2
    (tmp_path / "way.json").write_text(json.dumps(way))
    with pytest.raises(UserError, match=r"dataparser_transforms.json: (transform is|scale)"):
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


@pytest.mark.parametrize(("column", "words"), [((160.0, 120.0), "another size"), ((160.0, 0.0), "correct cx and cy")])
def test_a_principal_point_beyond_the_picture_is_said_to_be_one(column, words, tmp_path):
    write_scene(tmp_path, n_views=6)
    path = tmp_path / "cameras_sphere.npz"
    content = dict(np.load(path))
    for key in [key for key in content if key.startswith("world_mat") and "inv" not in key]:
        shift = np.eye(4)
        shift[:2, 2] = column
        content[key] = shift @ content[key]
    np.savez(path, **content)
    message = refusal(tmp_path)
    assert words in message and "principal point" in message
