"""Videos along camera paths: the paths, errors of bad files, and the output of the command."""

import json
import math
from pathlib import Path

import cv2
import numpy as np
import pytest
from runs import ROOT, run

from data.errors import UserError
from data.io.images import read_image
from data.scenes.load import load_scene
from models.methods.conf import load_config
from models.results.camera_paths import between, from_file, orbit

WIDE = ("model.sdf_network.d_hidden=128", "model.sdf_network.skip_in=[]")
BLENDER = np.diag([1.0, -1.0, -1.0, 1.0])


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
    assert np.allclose(centres.sum(axis=0) / 24 @ centres[0] / 3.0, (centres.mean(axis=0) ** 2).sum() / 3.0, atol=0.5)
    for shot in path.shots:
        ahead = shot.c2w[:3, 3] + 3.0 * shot.c2w[:3, 2]
        assert np.abs(ahead).max() < 1e-6 and abs(np.linalg.det(shot.c2w[:3, :3]) - 1) < 1e-9
    turns = np.linalg.norm(np.diff(centres, axis=0), axis=1)
    assert turns.std() < 1e-6


def test_a_way_between_photographs_begins_and_ends_at_them(scene):
    path = between(scene, (3, 7, 1), 1.0, 9.0)
    assert np.allclose(path.shots[0].c2w, scene.c2w[3]) and np.allclose(path.shots[-1].c2w, scene.c2w[1])
    assert np.allclose(path.shots[4].c2w, scene.c2w[7])


def in_world(scene, view):
    """The pose of a photograph as a camera-path file has it."""
    pose = scene.scene_to_world @ scene.c2w[view]
    pose[:3, :3] /= np.cbrt(np.linalg.det(scene.scene_to_world[:3, :3]))
    return pose @ BLENDER


def keys(scene, **more):
    entries = [{"camera_to_world": in_world(scene, view).tolist(), "fov": 40 + 10 * view} for view in (0, 1)]
    return {"keys": entries, "fps": 4, "seconds": 2, "width": 64, "height": 48} | more


def written(folder, content):
    path = folder / "way.json"
    path.write_text(json.dumps(content))
    return path


def test_a_file_of_keys_leads_through_its_cameras(scene, tmp_path):
    path = from_file(written(tmp_path, keys(scene)), scene)
    assert (len(path.shots), path.width, path.height, path.fps) == (8, 64, 48, 4)
    assert np.allclose(path.shots[0].c2w, scene.c2w[0]) and np.allclose(path.shots[-1].c2w, scene.c2w[1])
    assert math.isclose(path.shots[0].intrinsics[1, 1], 24 / math.tan(math.radians(20)))
    cycle = from_file(written(tmp_path, keys(scene, is_cycle=True)), scene)
    assert np.allclose(cycle.shots[-1].c2w, scene.c2w[0])


def test_a_file_of_nerfstudio_is_read_and_its_change_of_frame_undone(scene, tmp_path):
    poses = [in_world(scene, view) for view in (0, 4, 9)]
    turn, scale = np.eye(4), 0.3
    turn[:3, :3] = cv2.Rodrigues(np.array([0.2, -0.5, 1.0]))[0]
    turn[:3, 3] = (0.4, -1.0, 2.0)
    moved = [turn @ pose for pose in poses]
    for pose in moved:
        pose[:3, 3] *= scale
    cameras = [{"camera_to_world": pose.reshape(-1).tolist(), "fov": 50, "aspect": 1} for pose in moved]
    content = {"camera_type": "perspective", "render_width": 40, "render_height": 30, "fps": 5, "camera_path": cameras}
    (tmp_path / "dataparser_transforms.json").write_text(json.dumps({"transform": turn[:3].tolist(), "scale": scale}))
    path = from_file(written(tmp_path, content), scene)
    for shot, view in zip(path.shots, (0, 4, 9), strict=True):
        assert np.allclose(shot.c2w, scene.c2w[view], atol=1e-6)


BAD = {
    "one key": (lambda c: {**c, "keys": c["keys"][:1]}, "keys has 1 entries, and a path needs at least two"),
    "no keys": (lambda c: {}, "contains neither a list `keys`"),
    "nan": (lambda c: {**c, "keys": [c["keys"][0], {**c["keys"][1], "fov": math.nan}]}, "keys\\[1\\]: fov is nan"),
    "nan pose": (
        lambda c: {**c, "keys": [{"camera_to_world": [[math.nan] * 4] * 4}, c["keys"][1]]},
        "keys\\[0\\]: an entry of camera_to_world is nan",
    ),
    "no rotation": (lambda c: {**c, "keys": [{"camera_to_world": [[0.0] * 4] * 3}] * 2}, "contains no rotation"),
    "too wide": (lambda c: {**c, "keys": [{**key, "fov": 180} for key in c["keys"]]}, "fov is 180 degrees"),
    "endless": (lambda c: {**c, "seconds": 1e9}, "seconds, fps: 1e\\+09 s"),
    "size": (lambda c: {**c, "width": 0}, "width is 0"),
    "too long": (lambda c: {**c, "width": 1e6}, "width is 1e\\+06 and must be .*at most 65536"),
    "too large": (lambda c: {**c, "width": 65536, "height": 65536}, "frames of 65536 x 65536 are too large"),
    "too fast": (lambda c: {**c, "fps": 1000}, "fps is 1000 and must be at most 240"),
    "a word": (lambda c: {**c, "is_cycle": "yes"}, "is_cycle is a text and must be true or false"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_file_gets_its_sentence(name, scene, tmp_path):
    change, words = BAD[name]
    with pytest.raises(UserError, match=words) as caught:
        from_file(written(tmp_path, change(keys(scene))), scene)
    assert "way.json" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--path", "round"], "neither orbit"),
        (["--path", "0,99"], "no training photograph 99"),
        (["--show", "colour,smell"], "'smell' is not one of"),
        (["--fps", "0"], "--fps 0: must be above 0"),
        (["--output", "film.avi"], "name a .mp4 file"),
    ],
)
def test_a_wrong_flag_gets_its_sentence(trained, capsys, flags, words):
    assert run(trained, "--mode", "render", *flags, settings=WIDE) == 2
    assert words in capsys.readouterr().err


def frames_of(path: Path) -> list[np.ndarray]:
    video, frames = cv2.VideoCapture(str(path)), []
    while (found := video.read())[0]:
        frames.append(found[1])
    return frames


@pytest.mark.slow
def test_a_film_side_by_side_and_one_that_was_interrupted_goes_on(trained, tmp_path, capsys):
    flags = ["--mode", "render", "--resolution_level", "5", "--resolution", "24", "--seconds", "1", "--fps", "4"]
    flags += ["--show", "colour,normals,depth,shape,mesh"]
    assert run(trained, *flags, "--output", str(tmp_path / "pngs"), settings=WIDE) == 0
    pngs = sorted((tmp_path / "pngs").glob("*.png"))
    assert len(pngs) == 4 and read_image(pngs[0]).shape == (40, 200, 3)
    shape, mesh = np.split(read_image(pngs[0]), 5, axis=1)[3:]
    assert all(part.std() > 5 for part in np.split(read_image(pngs[0]), 5, axis=1))
    assert np.ptp(shape, axis=2).max() < 30 < np.ptp(mesh, axis=2).max(), "one is shaded, the other coloured"
    kept = pngs[0].stat().st_mtime_ns
    pngs[2].unlink()  # as if it had been interrupted there
    capsys.readouterr()
    assert run(trained, *flags, "--output", str(tmp_path / "pngs"), settings=WIDE) == 0
    assert "resuming: 3 of 4 frames" in capsys.readouterr().out
    assert pngs[2].exists() and pngs[0].stat().st_mtime_ns == kept
    for other in (["--path", "0,3"], ["--mcube_threshold", "0.1"]):
        assert run(trained, *flags, *other, "--output", str(tmp_path / "pngs"), settings=WIDE) == 2
        assert "contains the frames of another video" in capsys.readouterr().err and all(png.exists() for png in pngs)
    assert run(trained, *flags, "--path", "0,3", settings=WIDE) == 0
    told = capsys.readouterr().out
    assert "H.264" in told or "VP9" in told
    films = list((trained / "render").iterdir())
    assert [path.suffix for path in films] == [".mp4"] and len(frames_of(films[0])) == 4


@pytest.mark.slow
def test_a_folder_of_something_else_is_left_alone(trained, tmp_path, capsys):
    (tmp_path / "holiday.png").write_bytes(b"a photograph")
    assert run(trained, "--mode", "render", "--output", str(tmp_path), settings=WIDE) == 2
    assert "contains holiday.png, which is not a frame of a video" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.png"]
