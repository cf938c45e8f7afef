"""Numbers that a file may hold and float32 does not: each gets a sentence, none a NaN or a black picture."""

import dataclasses
import json

import colmap_files
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


def moved(by):
    """Every camera elsewhere, by as much."""

    def change(content):
        for entry in content["frames"]:
            entry["transform_matrix"][0][3] += by

    return edit(change)


def scaled(by):
    def change(content):
        for entry in content["frames"]:
            for row in entry["transform_matrix"][:3]:
                row[3] *= by

    return edit(change)


SCENES = {
    "an angle of nearly nothing": (frame(fl_x=None, fl_y=None, camera_angle_x=1e-40), "camera_angle_x is 1e-40"),
    "an angle whose half is nothing": (frame(fl_x=None, fl_y=None, camera_angle_x=5e-324), "camera_angle_x is"),
    "degrees of nearly nothing": (frame(fl_x=None, fl_y=None, x_fov=1e-40), "x_fov is 1e-40, too narrow"),
    "a focal length beyond float32": (
        frame(fl_x=1e40, fl_y=1e40),
        "view_2.png cannot be used: its focal length of 1e+40 pixels is too long",
    ),
    "a focal length of one axis": (frame(fl_y=1e12), "focal length of 1e+12 pixels is too long"),
    "a focal length of nearly nothing": (frame(fl_x=1e-40, fl_y=1e-40), "1e-40 pixels is too short"),
    "one camera far away": (edit(lambda c: c["frames"][2]["transform_matrix"][0].__setitem__(3, 1e39)), "frame 2"),
    "all cameras far away": (moved(1e39), "puts the camera 1e+39 from the origin"),
    "all cameras far for float64": (moved(1e13), "too far for the precision of float64"),
    "a world of giants": (scaled(1e30), "from the origin, beyond 1e+15"),
    "a world of dwarfs": (scaled(1e-30), "region of interest"),
    "a side without end": (frame(w=1e300, h=1e300), "w is 1e+300"),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_camera_file_of_extreme_numbers_gets_its_sentence(name, tmp_path):
    change, words = SCENES[name]
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


def test_a_focal_length_of_colmap_beyond_float32_gets_its_sentence(tmp_path):
    colmap_files.write_project(tmp_path, "txt")
    path = next(tmp_path.rglob("cameras.txt"))
    lines = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    path.write_text("\n".join(" ".join([*line[:4], "1e40", *line[5:]]) for line in lines) + "\n")
    assert "1e+40 pixels is too long" in refusal(tmp_path)


def test_points_beyond_float32_get_their_sentence(scene):
    points = SparsePoints(np.array([[0.0, 0, 1e39]]), np.full(1, 5), np.ones(1), np.zeros((1, 3), np.uint8))
    with pytest.raises(UserError, match="SfM points are beyond"):
        check_scene(dataclasses.replace(scene, points=points))


def path_file(folder, scene, **changes):
    pose = np.eye(4)
    pose[:3, 3] = scene.scene_to_world[:3, 3]
    entry = {"fov": 45, "camera_to_world": pose.tolist(), **changes}
    path = folder / "way.json"
    path.write_text(json.dumps({"keys": [entry, entry], "seconds": 1, "fps": 4}))
    return path


def far(value, scale=1.0):
    pose = np.diag([scale, scale, scale, 1.0])
    pose[0, 3] = value
    return {"camera_to_world": pose.tolist()}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fov": 1e-40}, "fov is 1e-40 degrees and must be"),
        ({"fov": 5e-324}, "degrees and must be"),
        (far(1e39), "radii from the unit sphere, beyond 100000"),
        (far(1e308), "radii from the unit sphere"),
        (far(0.0, 1e200), "contains no rotation"),
    ],
)
def test_a_camera_path_of_extreme_numbers_gets_its_sentence(changes, words, scene, tmp_path):
    with pytest.raises(UserError, match=words) as caught:
        from_file(path_file(tmp_path, scene, **changes), scene)
    assert "keys[0]" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("transform", "scale"),
    [(np.eye(4), 1e-320), (np.eye(4), 1e-40), (1e200 * np.eye(4), 1.0), (1e-200 * np.eye(4), 1.0)],
)
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
    assert ("another size" in message) == (words == "another size")
