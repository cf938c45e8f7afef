"""Broken scenes of each format: how to make one from a valid scene, and words of its error message."""

import json

import numpy as np
import scene_writers
from scene_writers import make_views, save_picture, sphere_points

from data.scenes.readers.colmap import read_llff
from data.scenes.readers.transforms import read_blender, read_nerfstudio, read_ngp

ALIKE = make_views(distorted=False, alike=True)
LENSES = make_views()
READERS = {"blender": read_blender, "ngp": read_ngp, "nerfstudio": read_nerfstudio, "llff": read_llff}
WRITERS = {
    "blender": lambda folder: scene_writers.write_blender(folder, ALIKE),
    "ngp": lambda folder: scene_writers.write_ngp(folder, LENSES),
    "nerfstudio": lambda folder: scene_writers.write_nerfstudio(folder, LENSES, sphere_points(5), masks=True),
    "llff": lambda folder: scene_writers.write_llff(folder, ALIKE),
}
CAMERAS = dict.fromkeys(("ngp", "nerfstudio"), "transforms.json")
CAMERAS |= {"blender": "transforms_train.json", "llff": "poses_bounds.npy"}


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
        changed = content["frames"][2] | keys
        content["frames"][2] = {key: value for key, value in changed.items() if key not in keys or value is not None}

    return edit(change)


def pose(change):
    """The matrix of frame 2, by a function of what it was."""

    def apply(content):
        matrix = np.array(content["frames"][2]["transform_matrix"])
        content["frames"][2]["transform_matrix"] = np.asarray(change(matrix)).tolist()

    return edit(apply)


def raw(content):
    return lambda path: path.write_bytes(content)


def removed(*names):
    """Files of the scene folder; "" is the camera file."""
    return lambda path: [(path.parent / name if name else path).unlink() for name in names]


def picture(name, width, height):
    return lambda path: save_picture(path.parent / name, np.zeros((height, width, 4), np.uint8))


def written(name, content):
    return lambda path: (path.parent / name).write_bytes(content)


def table(change):
    """Rewrite poses_bounds.npy by a function of the table."""
    return lambda path: np.save(path, change(np.load(path)))


def entry(column, value):
    """Another number in row 3."""
    return table(lambda values: values.__setitem__((3, column), value) or values)


def huge_table(path):
    """The header of a table of 1.4 TB, without data."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**10, 17)})


DEEP = b"[" * 200_000
OUT = "leads out of the scene folder"
NO_NPY = "cannot be read as an npy file"
HUGE_PLY = b"ply\nformat binary_little_endian 1.0\nelement vertex 999999999999\n"
HUGE_PLY += b"".join(b"property float %c\n" % axis for axis in b"xyz") + b"end_header\n1234"

# What every JSON format shares, on one of them: a change of frame 2, whose photograph is named in the sentence.
FRAMES = {
    "no pose": (frame(transform_matrix=None), ["has no transform_matrix"]),
    "a pose of three numbers": (frame(transform_matrix=[1, 2, 3]), ["four rows of four"]),
    "a pose of truth values": (frame(transform_matrix=[[True] * 4] * 4), ["True"]),
    "an infinite pose": (pose(lambda m: m + np.inf), ["inf", "finite number"]),
    "a pose that overflows": (pose(lambda m: m * [1e200, 1, 1, 1]), ["is not a rotation"]),
    "a sheared pose": (pose(lambda m: m @ (np.eye(4) + np.diag([0.1, 0, 0], 1))), ["is not a rotation"]),
    "a mirrored pose": (pose(lambda m: m @ np.diag([-1.0, 1, 1, 1])), ["is mirrored"]),
    "a transposed pose": (pose(lambda m: m.T), ["last row", "0 0 0 1"]),
    "an integer beyond floats": (frame(fl_x=10**400), ["fl_x", "finite number"]),
    "a focal length of zero": (frame(fl_x=0), ["fl_x is 0", "above 0"]),
    "a width alone": (frame(h=None), ["has w alone"]),
    "half a pixel of width": (frame(w=96.5), ["w is 96.5", "whole number"]),
    "an enormous size": (frame(w=1e9), ["w is 1e+09"]),
    "another aspect ratio": (picture("images/view_2.png", 88, 96), ["for 96x88", "is 88x96"]),
    "a fisheye coefficient": (frame(k4=0.1), ["k4 belongs to a fisheye"]),
    "tangential fisheye": (frame(is_fisheye=True), ["fisheye lens has no p1 and p2"]),
    "another lens": (frame(equirectangular=True), ["equirectangular", "not supported"]),
}
# The same without that name.
JSON = {
    "nested without end": (raw(DEEP), ["transforms.json", "nested too deeply"]),
    "a list for the file": (raw(b"[1]"), ["contains a list", "must contain an object"]),
    "an endless integer": (raw(b'{"frames": ' + b"9" * 5000 + b"}"), ["transforms.json", "cannot be read"]),
    "no frames": (shared(frames=[]), ["frames is empty"]),
    "frames missing": (edit(lambda c: c.pop("frames")), ["frames is missing"]),
    "frames as an object": (shared(frames={}), ["frames is an object", "must be a list"]),
    "a photograph twice": (edit(lambda c: c["frames"].append(c["frames"][1])), ["view_1.png", "listed twice"]),
    "most missing": (removed(*(f"images/view_{i}.png" for i in range(4))), ["4 of 6 photographs", "images/view_0.png"]),
    "a damaged photograph": (written("images/view_3.png", b"\x89PNG\r\n\x1a\n"), ["view_3.png", "truncated"]),
}
BLENDER = {
    "truncated": (raw(b'{"camera_angle_x": 0.69, "frames": [{"file_'), ["transforms_train.json", "JSON"]),
    "NaN in a pose": (pose(lambda m: m * np.nan), ["frame 2 (./train/view_2)", "nan", "finite number"]),
    "no focal length": (edit(lambda c: c.pop("camera_angle_x")), ["no focal length", "camera_angle_x"]),
    "an angle too wide": (shared(camera_angle_x=3.2), ["camera_angle_x is 3.2", "too wide for a pinhole"]),
    "a missing photograph": (removed("train/view_1.png"), ["./train/view_1", "does not exist"]),
    "a broken test file": (written("transforms_test.json", b"{}"), ["transforms_test.json: frames is"]),
    "a name no file may have": (frame(file_path="a\0b"), ["frame 2", "does not exist"]),
}
NERFSTUDIO = {
    "a mask that climbs out": (frame(mask_path="../m.png"), ["mask_path", "leads out"]),
    "five coefficients": (frame(distortion_params=[0] * 5), ["distortion_params", "six numbers"]),
    "an unknown model": (frame(camera_model="EQUIRECTANGULAR"), ["view_2.png", "'EQUI", "not supp", "OPENCV_FISHEYE"]),
    "a camera model that is a list": (frame(camera_model=[]), ["camera_model [] is not supported"]),
    "a missing mask": (removed("masks/view_1.png"), ["mask_path masks/view_1.png does not exist"]),
    "a split of nobody": (shared(train_filenames=["images/x.png"]), ["train_filenames", "images/x.png"]),
    "no split to train on": (shared(test_filenames=[]), ["train_filenames is missing or empty"]),
    "a broken applied_transform": (shared(applied_transform=[[0] * 4] * 3), ["applied_transform is no"]),
    "a negative applied_scale": (shared(applied_scale=-1), ["applied_scale is -1"]),
    "missing points": (removed("sparse_pc.ply"), ["ply_file_path sparse_pc.ply does not exist"]),
    "points cut short": (written("sparse_pc.ply", HUGE_PLY), ["sparse_pc.ply: cannot be read"]),
}
LLFF = {
    "a camera too few": (table(lambda t: t[:-1]), ["contains 5 cameras", "6 photographs"]),
    "a table of 15 columns": (table(lambda t: t[:, :15]), ["shape [6, 15]", "[N, 17]"]),
    "a table of nothing": (table(lambda t: t[:0]), ["shape [0, 17]"]),
    "a complex table": (table(lambda t: t + 0j), ["complex128"]),
    "a table of objects": (table(lambda t: t.astype(object)), [NO_NPY]),
    "a table cut short": (lambda path: path.write_bytes(path.read_bytes()[:-8]), [NO_NPY]),
    "a table beyond memory": (huge_table, ["claims 170000000000 values", NO_NPY]),
    "NaN in a row": (entry(5, np.nan), ["row 3", "NaN"]),
    "a row of no rotation": (entry(0, 5.0), ["row 3 (view_3.png)", "is not a rotation"]),
    "no focal length in a row": (entry(14, 0.0), ["row 3 (view_3.png)", "focal length is 0"]),
    "a negative height in a row": (entry(4, -72.0), ["row 3 (view_3.png)", "height is -72"]),
    "photographs turned on their side": (picture("images/view_2.png", 72, 96), ["for 96x72", "is 72x96"]),
}
OUTSIDE = {name: (frame(file_path=name), ["frame 2", OUT]) for name in ("../../etc/a.png",)}
NAMED = {name: (change, ["view_2.png", *words]) for name, (change, words) in FRAMES.items()}
OF_KIND = {"ngp": NAMED | JSON | OUTSIDE, "blender": BLENDER, "nerfstudio": NERFSTUDIO, "llff": LLFF}
BROKEN = {f"{kind}: {name}": (kind, *broken) for kind, table in OF_KIND.items() for name, broken in table.items()}
BROKEN |= {f"{kind}: no camera file": (kind, removed(""), [f"has no {name}"]) for kind, name in CAMERAS.items()}
