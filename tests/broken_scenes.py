"""Broken scenes of each format: how to make one from a valid scene, and words of its error message."""

import json

import numpy as np
from scene_writers import (
    make_views,
    save_picture,
    sphere_points,
    write_blender,
    write_llff,
    write_nerfstudio,
    write_ngp,
)

from data.readers.blender import read_blender
from data.readers.llff import read_llff
from data.readers.nerfstudio import read_nerfstudio
from data.readers.ngp import read_ngp

ALIKE = make_views(distorted=False, alike=True)
LENSES = make_views()
READERS = {"blender": read_blender, "ngp": read_ngp, "nerfstudio": read_nerfstudio, "llff": read_llff}
WRITERS = {
    "blender": lambda folder: write_blender(folder, ALIKE),
    "ngp": lambda folder: write_ngp(folder, LENSES),
    "nerfstudio": lambda folder: write_nerfstudio(folder, LENSES, sphere_points(5), masks=True),
    "llff": lambda folder: write_llff(folder, ALIKE),
}
CAMERAS = {
    "blender": "transforms_train.json",
    "ngp": "transforms.json",
    "nerfstudio": "transforms.json",
    "llff": "poses_bounds.npy",
}


def edit(change):
    """Rewrite the camera file's JSON by a function that changes it in place."""

    def apply(path):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return apply


def shared(**keys):
    return edit(lambda content: content.update(keys))


def frame(**keys):
    """Keys of frame 2; None removes one."""

    def change(content):
        content["frames"][2].update(keys)
        for key in [key for key, value in keys.items() if value is None]:
            del content["frames"][2][key]

    return edit(change)


def pose(change):
    """The matrix of frame 2, by a function of what it was."""

    def apply(content):
        matrix = np.array(content["frames"][2]["transform_matrix"])
        content["frames"][2]["transform_matrix"] = np.asarray(change(matrix)).tolist()

    return edit(apply)


def raw(content):
    return lambda path: path.write_bytes(content)


def removed(name):
    """A file of the scene folder; "" is the camera file."""
    return lambda path: (path.parent / name if name else path).unlink()


def picture(name, width, height):
    return lambda path: save_picture(path.parent / name, np.zeros((height, width, 4), np.uint8))


def written(name, content):
    return lambda path: (path.parent / name).write_bytes(content)


def repeated(content):
    content["frames"].append(content["frames"][1])


def most_removed(path):
    for index in range(4):
        (path.parent / "images" / f"view_{index}.png").unlink()


def table(change):
    """Rewrite poses_bounds.npy by a function of the table."""
    return lambda path: np.save(path, change(np.load(path)))


def entry(row, column, value):
    def change(values):
        values[row, column] = value
        return values

    return table(change)


def huge_table(path):
    """The header of a table of 1.4 TB, without data."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**10, 17)})


DEEP = b"[" * 200_000
SHEAR = np.eye(4) + np.diag([0.1, 0, 0], 1)
MIRROR = np.diag([-1.0, 1, 1, 1])

BROKEN = {
    # What every JSON format shares, each on one of them.
    "no camera file, blender": ("blender", removed(""), ["has no transforms_train.json"]),
    "no camera file, ngp": ("ngp", removed(""), ["has no transforms.json"]),
    "no camera file, nerfstudio": ("nerfstudio", removed(""), ["has no transforms.json"]),
    "an empty file": ("ngp", raw(b""), ["transforms.json", "cannot be read as JSON"]),
    "truncated": ("blender", raw(b'{"camera_angle_x": 0.69, "frames": [{"file_'), ["transforms_train.json", "JSON"]),
    "not text": ("ngp", raw(b"\xff\xfe\x00\x01"), ["transforms.json", "cannot be read as JSON"]),
    "nested without end": ("ngp", raw(DEEP), ["transforms.json", "nested too deeply"]),
    "a list for the file": ("ngp", raw(b"[1]"), ["contains a list", "must contain an object"]),
    "an endless integer": ("ngp", raw(b'{"frames": ' + b"9" * 5000 + b"}"), ["transforms.json", "cannot be read"]),
    "no frames": ("ngp", shared(frames=[]), ["frames is empty"]),
    "frames missing": ("blender", edit(lambda c: c.pop("frames")), ["frames is missing"]),
    "frames as an object": ("ngp", shared(frames={}), ["frames is an object", "must be a list"]),
    "a frame that is a number": ("ngp", shared(frames=[7]), ["frames[0] is a number"]),
    "a frame without name": ("ngp", frame(file_path=None), ["frame 2", "file_path is None"]),
    "a name that is a number": ("nerfstudio", frame(file_path=12), ["frame 2", "file_path is 12"]),
    "a frame without pose": ("ngp", frame(transform_matrix=None), ["view_2.png", "has no transform_matrix"]),
    "a pose of three numbers": ("ngp", frame(transform_matrix=[1, 2, 3]), ["view_2.png", "four rows of four"]),
    "a pose of words": ("ngp", frame(transform_matrix=[["a"] * 4] * 4), ["view_2.png", "'a'", "finite number"]),
    "a pose of truth values": ("ngp", frame(transform_matrix=[[True] * 4] * 4), ["view_2.png", "True"]),
    "NaN in a pose": ("blender", pose(lambda m: m * np.nan), ["frame 2 (./train/view_2)", "nan", "finite number"]),
    "an infinite pose": ("ngp", pose(lambda m: m + np.inf), ["view_2.png", "inf", "finite number"]),
    "a pose that overflows": ("ngp", pose(lambda m: m * [1e200, 1, 1, 1]), ["view_2.png", "is not a rotation"]),
    "an integer beyond floats": ("ngp", frame(fl_x=10**400), ["view_2.png): fl_x", "finite number"]),
    "a pose of zeros": ("ngp", pose(lambda m: m * [[0]] * 3 + [[0, 0, 0, 1]]), ["view_2.png", "is not a rotation"]),
    "a sheared pose": ("blender", pose(lambda m: m @ SHEAR), ["view_2", "is not a rotation"]),
    "a stretched pose": ("ngp", pose(lambda m: m * [1, 1.1, 1, 1]), ["view_2.png", "is not a rotation"]),
    "a mirrored pose": ("nerfstudio", pose(lambda m: m @ MIRROR), ["view_2.png", "is mirrored"]),
    "a transposed pose": ("ngp", pose(lambda m: m.T), ["view_2.png", "last row", "0 0 0 1"]),
    "a focal length of zero": ("ngp", frame(fl_x=0), ["view_2.png", "fl_x is 0", "above 0"]),
    "a negative focal length": ("nerfstudio", frame(fl_y=-50), ["view_2.png", "fl_y is -50"]),
    "no focal length": ("blender", edit(lambda c: c.pop("camera_angle_x")), ["no focal length", "camera_angle_x"]),
    "an angle of too wide for a pinhole": (
        "blender",
        shared(camera_angle_x=3.2),
        ["camera_angle_x is 3.2", "too wide for a pinhole"],
    ),
    "an angle in words": ("blender", shared(camera_angle_x="wide"), ["camera_angle_x is 'wide'"]),
    "a width alone": ("ngp", frame(h=None), ["view_2.png", "has w alone"]),
    "half a pixel of width": ("ngp", frame(w=96.5), ["view_2.png", "w is 96.5", "whole number"]),
    "an enormous size": ("ngp", frame(w=1e9), ["view_2.png", "w is 1e+09"]),
    "another aspect ratio": ("ngp", picture("images/view_2.png", 88, 96), ["view_2.png", "for 96x88", "is 88x96"]),
    "a principal point in words": ("ngp", frame(cx="centre"), ["view_2.png", "cx is 'centre'"]),
    "a fisheye coefficient": ("ngp", frame(k4=0.1), ["view_2.png", "k4 belongs to a fisheye"]),
    "tangential fisheye": ("ngp", frame(is_fisheye=True), ["view_2.png", "fisheye lens has no p1 and p2"]),
    "a fisheye in words": ("ngp", frame(is_fisheye="no"), ["is_fisheye is a text", "true or false"]),
    "another lens": ("ngp", frame(equirectangular=True), ["view_2.png", "equirectangular", "not supported"]),
    "five coefficients": ("nerfstudio", frame(distortion_params=[0] * 5), ["distortion_params", "six numbers"]),
    "a photograph twice": ("ngp", edit(repeated), ["view_1.png", "listed twice"]),
    "a name that climbs out": ("ngp", frame(file_path="../../etc/a.png"), ["frame 2", "leads out of the scene folder"]),
    "an absolute name": ("blender", frame(file_path="/etc/a.png"), ["frame 2", "leads out of the scene folder"]),
    "a drive": ("ngp", frame(file_path="C:\\scans\\a.png"), ["frame 2", "leads out of the scene folder"]),
    "a mask that climbs out": ("nerfstudio", frame(mask_path="../m.png"), ["mask_path", "leads out"]),
    "a name no file may have": ("blender", frame(file_path="a\0b"), ["frame 2", "does not exist"]),
    "a name of a mile": ("blender", frame(file_path="a" * 5000), ["frame 2", "does not exist"]),
    # What each format adds.
    "a missing photograph, blender": ("blender", removed("train/view_1.png"), ["./train/view_1", "does not exist"]),
    "a missing photograph, nerfstudio": ("nerfstudio", removed("images/view_1.png"), ["view_1.png", "does not exist"]),
    "most photographs missing": ("ngp", most_removed, ["6 frames 4 do not exist", "images/view_0.png"]),
    "a damaged photograph": ("ngp", written("images/view_3.png", b"\x89PNG\r\n\x1a\n"), ["view_3.png", "truncated"]),
    "a text for a photograph": ("blender", written("train/view_3.png", b"hello"), ["view_3.png", "neither PNG"]),
    "a broken test file": ("blender", written("transforms_test.json", b"{}"), ["transforms_test.json: frames is"]),
    "an unknown camera model": (
        "nerfstudio",
        frame(camera_model="EQUIRECTANGULAR"),
        ["view_2.png", "'EQUIRECTANGULAR' is not supported", "OPENCV_FISHEYE"],
    ),
    "a camera model that is a list": ("nerfstudio", frame(camera_model=[]), ["camera_model [] is not supported"]),
    "a missing mask": ("nerfstudio", removed("masks/view_1.png"), ["mask_path masks/view_1.png does not exist"]),
    "a frame without mask": ("nerfstudio", frame(mask_path=None), ["1 of 6 frames have no mask_path"]),
    "a split of nobody": (
        "nerfstudio",
        shared(train_filenames=["images/x.png"]),
        ["train_filenames", "images/x.png"],
    ),
    "no split to train on": ("nerfstudio", shared(test_filenames=[]), ["train_filenames is missing or empty"]),
    "a split that is a text": ("nerfstudio", shared(train_filenames="all"), ["train_filenames must be a list"]),
    "a broken applied_transform": ("nerfstudio", shared(applied_transform=[[0] * 4] * 3), ["applied_transform is no"]),
    "a negative applied_scale": ("nerfstudio", shared(applied_scale=-1), ["applied_scale is -1"]),
    "missing points": ("nerfstudio", removed("sparse_pc.ply"), ["ply_file_path sparse_pc.ply does not exist"]),
    "points that are a text": ("nerfstudio", written("sparse_pc.ply", b"hello"), ["sparse_pc.ply: cannot be read"]),
    "points cut short": (
        "nerfstudio",
        written(
            "sparse_pc.ply",
            b"ply\nformat binary_little_endian 1.0\nelement vertex 999999999999\nproperty float x\n"
            b"property float y\nproperty float z\nend_header\n1234",
        ),
        ["sparse_pc.ply: cannot be read"],
    ),
    "no camera file, llff": ("llff", removed(""), ["has no poses_bounds.npy"]),
    "a camera too few": ("llff", table(lambda t: t[:-1]), ["contains 5 cameras", "6 photographs"]),
    "a photograph too few": ("llff", removed("images/view_0.png"), ["contains 6 cameras", "5 photographs"]),
    "a table of 15 columns": ("llff", table(lambda t: t[:, :15]), ["shape [6, 15]", "[N, 17]"]),
    "a table of nothing": ("llff", table(lambda t: t[:0]), ["shape [0, 17]"]),
    "a complex table": ("llff", table(lambda t: t + 0j), ["complex128"]),
    "a table of objects": ("llff", table(lambda t: t.astype(object)), ["cannot be read as an npy file"]),
    "a table cut short": ("llff", lambda p: p.write_bytes(p.read_bytes()[:-8]), ["cannot be read as an npy file"]),
    "a table beyond memory": ("llff", huge_table, ["claims 170000000000 values", "cannot be read as an npy file"]),
    "a text for a table": ("llff", raw(b"hello"), ["cannot be read as an npy file"]),
    "NaN in a row": ("llff", entry(3, 5, np.nan), ["row 3", "NaN"]),
    "a row of no rotation": ("llff", entry(3, 0, 5.0), ["row 3 (view_3.png)", "is not a rotation"]),
    "no focal length in a row": ("llff", entry(3, 14, 0.0), ["row 3 (view_3.png)", "focal length is 0"]),
    "a negative height in a row": ("llff", entry(3, 4, -72.0), ["row 3 (view_3.png)", "height is -72"]),
    "photographs turned on their side": ("llff", picture("images/view_2.png", 72, 96), ["for 96x72", "is 72x96"]),
}
