"""Videos along camera paths: the paths, errors of bad files, and the output of the command."""

import json
import math
import re

import cv2
import numpy as np
import pytest
from runs import ROOT, run

from data.errors import UserError
from data.io.images import read_image
from data.prepare.load import load_scene
from models.conf import load_config
from models.results.camera_paths import between, from_file, orbit

WIDE = ("model.sdf_network.d_hidden=128", "model.sdf_network.skip_in=[]")


@pytest.fixture(scope="module")
def scene():
    conf = load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",))
    return load_scene(conf.dataset)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("render")
    settings = ("train.end_iter=2", "train.warm_up_end=1", "train.val_freq=0", "train.val_mesh_freq=0", *WIDE)
    assert run(folder, settings=settings) == 0
    return folder


def test_an_orbit_goes_once_round_and_looks_at_the_middle(scene):
    path = orbit(scene, 2.0, 12.0)
    centres = np.array([shot.c2w[:3, 3] for shot in path.shots])
    assert len(path.shots) == 24 and np.allclose(np.linalg.norm(centres, axis=1), 3.0, atol=1e-3)
    for shot in path.shots:
        ahead = shot.c2w[:3, 3] + 3.0 * shot.c2w[:3, 2]
        assert np.abs(ahead).max() < 1e-6 and abs(np.linalg.det(shot.c2w[:3, :3]) - 1) < 1e-9
    turns = np.linalg.norm(np.diff([*centres, centres[0]], axis=0), axis=1)
    assert turns.std() < 1e-6
    path = between(scene, (3, 7, 1), 1.0, 9.0)
    for at, view in ((0, 3), (4, 7), (-1, 1)):
        assert np.allclose(path.shots[at].c2w, scene.c2w[view])


def in_world(scene, view):
    """The pose of a photograph as a camera-path file has it."""
    pose = scene.scene_to_world @ scene.c2w[view]
    pose[:3, :3] /= np.cbrt(np.linalg.det(scene.scene_to_world[:3, :3]))
    return pose @ np.diag([1.0, -1.0, -1.0, 1.0])


def written(folder, content):
    path = folder / "way.json"
    path.write_text(json.dumps(content))
    return path


def way(scene, **second):
    """A file of two keys; `second` replaces values of the second one."""
    cameras = [{"camera_to_world": in_world(scene, view).tolist(), "fov": 40 + 10 * view} for view in (0, 1)]
    return {"keys": [cameras[0], cameras[1] | second], "fps": 4, "seconds": 2, "width": 64, "height": 48}


def test_a_file_of_keys_leads_through_its_cameras(scene, tmp_path):
    path = from_file(written(tmp_path, way(scene)), scene)
    assert (len(path.shots), path.width, path.height, path.fps) == (8, 64, 48, 4)
    assert np.allclose(path.shots[0].c2w, scene.c2w[0]) and np.allclose(path.shots[-1].c2w, scene.c2w[1])
    assert math.isclose(path.shots[0].intrinsics[1, 1], 24 / math.tan(math.radians(20)))
    cycle = from_file(written(tmp_path, way(scene) | {"is_cycle": True}), scene)
    assert np.allclose(cycle.shots[-1].c2w, scene.c2w[0])


def test_a_wrong_file_gets_its_sentence(scene, tmp_path):
    for second, others, words in (
        ({"fov": math.nan}, {}, "keys\\[1\\]: fov is nan"),
        ({"camera_to_world": [[0.0] * 4] * 3}, {}, "contains no rotation"),
        ({"fov": 180}, {}, "fov is 180 degrees"),
        ({}, {"keys": []}, "keys has 0 entries, and a path needs at least two"),
        ({}, {"seconds": 1e9}, "seconds, fps: 1e\\+09 s"),
        ({}, {"width": 65536, "height": 65536}, "frames of 65536 x 65536 are too large"),
        ({}, {"is_cycle": "yes"}, "is_cycle is a text and must be true or false"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            from_file(written(tmp_path, way(scene, **second) | others), scene)
        assert "way.json" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_of_nerfstudio_is_read_and_its_change_of_frame_undone(scene, tmp_path):
    turn, scale, cameras = np.eye(4), 0.3, []
    turn[:3, :3] = cv2.Rodrigues(np.array([0.2, -0.5, 1.0]))[0]
    turn[:3, 3] = (0.4, -1.0, 2.0)
    for view in (0, 4, 9):
        pose = turn @ in_world(scene, view)
        pose[:3, 3] *= scale
        cameras.append({"camera_to_world": pose.reshape(-1).tolist(), "fov": 50, "aspect": 1})
    content = {"camera_type": "perspective", "render_width": 40, "render_height": 30, "fps": 5, "camera_path": cameras}
    (tmp_path / "dataparser_transforms.json").write_text(json.dumps({"transform": turn[:3].tolist(), "scale": scale}))
    for shot, view in zip(from_file(written(tmp_path, content), scene).shots, (0, 4, 9), strict=True):
        assert np.allclose(shot.c2w, scene.c2w[view], atol=1e-6)


@pytest.mark.slow
def test_a_film_side_by_side_and_one_that_was_interrupted_goes_on(trained, tmp_path, capsys):
    flags = ["--mode", "render", "--resolution_level", "5", "--resolution", "24", "--seconds", "1", "--fps", "4"]
    flags += ["--show", "colour,normals,depth,shape,mesh"]

    def film(*more, folder="pngs", status=0):
        assert run(trained, *flags, *more, "--output", str(tmp_path / folder), settings=WIDE) == status
        return "".join(capsys.readouterr())

    film()
    pngs = sorted((tmp_path / "pngs").glob("*.png"))
    assert len(pngs) == 4 and read_image(pngs[0]).shape == (40, 200, 3)
    panels = np.split(read_image(pngs[0]), 5, axis=1)
    assert all(panel.std() > 5 for panel in panels)
    assert np.ptp(panels[3], axis=2).max() < 30 < np.ptp(panels[4], axis=2).max(), "one is shaded, the other coloured"
    kept = pngs[0].stat().st_mtime_ns
    pngs[2].unlink()  # as if it had been interrupted there
    assert "resuming: 3 of 4 frames" in film()
    assert pngs[2].exists() and pngs[0].stat().st_mtime_ns == kept
    assert "contains the frames of another video" in film("--path", "0,3", status=2)
    for wrong in (("--path", "0,99"), ("--show", "colour,smell"), ("--fps", "0")):
        assert "error: " in film(*wrong, status=2)
    (tmp_path / "holiday.png").write_bytes(b"a photograph")
    assert "contains holiday.png, which is not a frame of a video" in film(folder=".", status=2)
    assert re.search("H.264|VP9", film("--path", "0,3", folder="a.mp4"))
    assert cv2.VideoCapture(str(tmp_path / "a.mp4")).get(cv2.CAP_PROP_FRAME_COUNT) == 4
