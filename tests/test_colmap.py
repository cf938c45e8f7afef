"""COLMAP projects: what is written by the description of the format is seen at the same pixels when read."""

import re
import struct

import colmap_files
import cv2
import numpy as np
import pycolmap
import pytest
from scipy.spatial.transform import Rotation

from data.errors import SceneError
from data.io.images import write_image
from data.scenes.readers.colmap import read_colmap


def seen_by(posed, xyz):
    """Pixels [N, 2] in this program's convention, by OpenCV."""
    w2c = np.linalg.inv(posed.c2w)
    turn, shift = cv2.Rodrigues(w2c[:3, :3])[0], w2c[:3, 3]
    lens = posed.lens
    distortion = np.array(lens.distortion or (0.0,) * 4)
    if lens.is_fisheye:
        pixels = cv2.fisheye.projectPoints(xyz[None], turn, shift, lens.intrinsics, distortion)[0]
    else:
        pixels = cv2.projectPoints(xyz, turn, shift, lens.intrinsics, distortion)[0]
    return pixels.reshape(-1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("matches", [colmap_files.N_POINTS, 0])
@pytest.mark.parametrize("kind", ["bin", "txt"])
def test_points_are_seen_where_the_format_says(tmp_path, kind, matches):
    colmap_files.write_project(tmp_path, kind, matches=matches)
    parsed = read_colmap(tmp_path, None)
    quaternions, translations = colmap_files.poses(len(colmap_files.CAMERAS))
    xyz = colmap_files.points()
    assert len(parsed.images) == len(colmap_files.CAMERAS)
    for index, (model, (_, size, parameters)) in enumerate(colmap_files.CAMERAS.items()):
        w, x, y, z = quaternions[index]
        in_camera = Rotation.from_quat([x, y, z, w]).apply(xyz) + translations[index]
        expected = colmap_files.project(model, parameters, in_camera) - 0.5
        posed = parsed.images[index]
        assert posed.path.name == f"{index}_{model.lower()}.png"
        assert posed.lens.size == size
        assert np.abs(seen_by(posed, xyz) - expected).max() < 0.01, model
    points = parsed.points
    order = np.argsort(points.rgb[:, 0])
    assert np.allclose(points.xyz[order], xyz) and np.allclose(points.error, 0.5)
    assert (points.n_views == len(colmap_files.CAMERAS)).all()
    assert (points.rgb[order] == [(index, 20, 30) for index in range(colmap_files.N_POINTS)]).all()


def test_the_largest_of_several_models_is_taken_and_said(tmp_path):
    colmap_files.write_project(tmp_path, "bin", where="sparse/0", names=["a.png", "b.png"])
    colmap_files.write_project(tmp_path, "txt", where="sparse/1", names=["c.png", "d.png", "e.png"])
    parsed = read_colmap(tmp_path, None)
    assert [posed.path.name for posed in parsed.images] == ["c.png", "d.png", "e.png"]
    several, left_out = parsed.notes
    assert re.search(r"sparse.0 \(2\).*sparse.1 \(3\).*1, the largest, is used", several)
    assert re.search("2 photographs .* left out: a.png and b.png", left_out)


def edited(name, change):
    """A function that changes the bytes of a file of the binary model."""

    def edit(folder):
        path = folder / "sparse/0" / name
        content = path.read_bytes()
        path.write_bytes(change(content))
        assert path.read_bytes() != content

    return edit


def packed(name, kind, old, new):
    return edited(name, lambda content: content.replace(struct.pack(kind, *old), struct.pack(kind, *new), 1))


def with_half_the_masks(folder):
    (folder / "masks").mkdir()
    write_image(folder / "masks" / "0_simple_pinhole.png", np.zeros((48, 64), np.uint8))


BROKEN = {
    "no images folder": (lambda folder: (folder / "images").rename(folder / "elsewhere"), "no folder images/"),
    "a photograph": (lambda at: (at / "images/3_radial.png").unlink(), "1 of 9 photographs are missing"),
    "cameras truncated": (edited("cameras.bin", lambda content: content[:100]), "truncated"),
    "images truncated": (edited("images.bin", lambda content: content[:-10]), "truncated"),
    "points truncated": (edited("points3D.bin", lambda content: content[:300]), "truncated"),
    "huge count": (packed("points3D.bin", "<Q", (30,), (1 << 60,)), "truncated"),
    "unknown camera": (packed("cameras.bin", "<ii", (1, 0), (1, 99)), "camera model 99"),
    "zero focal length": (packed("cameras.bin", "<d", (60.0,), (0.0,)), "invalid parameters"),
    "a name that leads out": (
        edited("images.bin", lambda was: was.replace(b"0_simple_pinhole", b"../../../../x/aa")),
        "is outside",
    ),
    "a missing camera": (packed("images.bin", "<I8s", (9, b"8_radial"), (77, b"8_radial")), "has the camera 77"),
    "half the masks": (with_half_the_masks, "8 of 9 photographs have no mask, the first is 1_pinhole.png"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_project_gets_one_sentence(tmp_path, name):
    change, words = BROKEN[name]
    colmap_files.write_project(tmp_path, "bin")
    change(tmp_path)
    with pytest.raises(SceneError, match=re.escape(words)) as caught:
        read_colmap(tmp_path, None)
    assert "\n" not in str(caught.value)


# cameras that are fixed to each other, as pycolmap writes them

CAMERAS = ("left", "right")
# Rotation vector and translation of the second camera, from the frame of the rig, which is that of the first.
RIGHT = (np.array([0.1, 0.6, -0.2]), np.array([-0.3, 0.05, 0.1]))
N_FRAMES = 2


def rigid(vector, translation):
    """World or rig to camera [4, 4]."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = Rotation.from_rotvec(vector).as_matrix(), translation
    return matrix


def of_rig(frame):
    """The pose of the rig, world to rig [4, 4]."""
    return rigid([0.1 * frame, 2.0 * frame, -0.3], [0.1 * frame, 0.2, 3.0])


def as_rigid3d(matrix):
    return pycolmap.Rigid3d(pycolmap.Rotation3d(matrix[:3, :3]), matrix[:3, 3])


def write_rig(folder, kind):
    """A project whose model has one rig of two cameras, each with one photograph per frame."""
    model = pycolmap.Reconstruction()
    rig = pycolmap.Rig(rig_id=1)
    sensors = [pycolmap.sensor_t(pycolmap.SensorType.CAMERA, index + 1) for index in range(len(CAMERAS))]
    for index in range(len(CAMERAS)):
        lens = {"model": "PINHOLE", "width": 64, "height": 48, "params": [60.0 + index, 60.0, 32.0, 24.0]}
        model.add_camera(pycolmap.Camera(camera_id=index + 1, **lens))
    rig.add_ref_sensor(sensors[0])
    rig.add_sensor(sensors[1], as_rigid3d(rigid(*RIGHT)))
    model.add_rig(rig)
    for moment in range(N_FRAMES):
        frame = pycolmap.Frame(frame_id=moment + 1, rig_id=1, rig_from_world=as_rigid3d(of_rig(moment)))
        numbers = [len(CAMERAS) * moment + index + 1 for index in range(len(CAMERAS))]
        for index in range(len(CAMERAS)):
            frame.add_data_id(pycolmap.data_t(sensors[index], numbers[index]))
        model.add_frame(frame)
        for index, (name, number) in enumerate(zip(CAMERAS, numbers, strict=True)):
            photograph = f"{name}/{moment}.png"
            image = pycolmap.Image(name=photograph, camera_id=index + 1, image_id=number, frame_id=moment + 1)
            model.add_image(image)
            (folder / "images" / name).mkdir(parents=True, exist_ok=True)
            write_image(folder / "images" / photograph, np.zeros((48, 64, 3), np.uint8))
        model.register_frame(moment + 1)
    (folder / "sparse/0").mkdir(parents=True)
    (model.write_binary if kind == "bin" else model.write_text)(folder / "sparse/0")


@pytest.mark.parametrize("kind", ["bin", "txt"])
def test_each_camera_of_a_rig_has_its_own_pose_and_lens(tmp_path, kind):
    write_rig(tmp_path, kind)
    images = read_colmap(tmp_path, None).images
    names = [image.path.relative_to(tmp_path / "images").as_posix() for image in images]
    assert names == [f"{name}/{moment}.png" for moment in range(N_FRAMES) for name in sorted(CAMERAS)]
    for image in images:
        name, moment = image.path.parent.name, int(image.path.stem)
        expected = (rigid(*RIGHT) if name == "right" else np.eye(4)) @ of_rig(moment)
        np.testing.assert_allclose(np.linalg.inv(image.c2w), expected, atol=1e-9)
        assert image.lens.intrinsics[0, 0] == 60.0 + CAMERAS.index(name)
