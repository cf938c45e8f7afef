"""COLMAP models of cameras that are fixed to each other, as pycolmap writes them."""

import numpy as np
import pycolmap
import pytest
from scipy.spatial.transform import Rotation

from data.errors import SceneError
from data.io.images import write_image
from data.readers.colmap import read_colmap

CAMERAS = ("left", "right", "rear")
IN_RIG = {  # rotation vector and translation, from the frame of the rig, which is that of the first camera
    "left": (np.zeros(3), np.zeros(3)),
    "right": (np.array([0.1, 0.6, -0.2]), np.array([-0.3, 0.05, 0.1])),
    "rear": (np.array([0.0, 3.0, 0.3]), np.array([0.2, -0.1, 0.4])),
}
N_FRAMES = 3


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
    """A project whose model has one rig of three cameras, each with one photograph per frame."""
    model = pycolmap.Reconstruction()
    rig = pycolmap.Rig(rig_id=1)
    sensors = [pycolmap.sensor_t(pycolmap.SensorType.CAMERA, index + 1) for index in range(len(CAMERAS))]
    for index, (name, sensor) in enumerate(zip(CAMERAS, sensors, strict=True)):
        lens = {"model": "PINHOLE", "width": 64, "height": 48, "params": [60.0 + index, 60.0, 32.0, 24.0]}
        model.add_camera(pycolmap.Camera(camera_id=index + 1, **lens))
        if index:
            rig.add_sensor(sensor, as_rigid3d(rigid(*IN_RIG[name])))
        else:
            rig.add_ref_sensor(sensor)
    model.add_rig(rig)
    for moment in range(N_FRAMES):
        frame = pycolmap.Frame(frame_id=moment + 1, rig_id=1, rig_from_world=as_rigid3d(of_rig(moment)))
        numbers = [len(CAMERAS) * moment + index + 1 for index in range(len(CAMERAS))]
        for sensor, number in zip(sensors, numbers, strict=True):
            frame.add_data_id(pycolmap.data_t(sensor, number))
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
    assert (tmp_path / f"sparse/0/rigs.{kind}").is_file() and (tmp_path / f"sparse/0/frames.{kind}").is_file()
    images = read_colmap(tmp_path, None).images
    names = [image.path.relative_to(tmp_path / "images").as_posix() for image in images]
    assert names == [f"{name}/{moment}.png" for moment in range(N_FRAMES) for name in sorted(CAMERAS)]
    for image in images:
        name, moment = image.path.parent.name, int(image.path.stem)
        expected = rigid(*IN_RIG[name]) @ of_rig(moment)
        np.testing.assert_allclose(np.linalg.inv(image.c2w), expected, atol=1e-9)
        assert image.lens.intrinsics[0, 0] == 60.0 + CAMERAS.index(name)


@pytest.mark.parametrize("name", ["rigs", "frames"])
def test_a_truncated_rig_is_not_read(tmp_path, name):
    """pycolmap reads the poses of a truncated rigs.bin as numbers without sense."""
    write_rig(tmp_path, "bin")
    path = tmp_path / f"sparse/0/{name}.bin"
    content = path.read_bytes()
    for length in (0, 10, 30, len(content) - 40, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(SceneError, match=rf"{name}.bin is truncated or damaged") as caught:
            read_colmap(tmp_path, None)
        assert "\n" not in str(caught.value)
