"""Wrong scene folders: each is named in one sentence before anything is trained, and nothing in them is executed."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from synthetic_scene import SCALE_MAT, change_cameras, dataset_config, save, similarity, write_scene

from data.errors import SceneError, UserError
from data.io.images import ImageError
from data.scenes.load import load_scene


def load(folder, **changes):
    return load_scene(dataset_config(folder, **changes))


def remove(name):
    def change(folder):
        path = folder / name
        for child in path.iterdir() if path.is_dir() else ():
            child.unlink()
        path.rmdir() if path.is_dir() else path.unlink()

    return change


def cameras(**changes):
    return lambda folder: change_cameras(folder, **changes)


def world_mat(change):
    """Rewrite world_mat_2 by a function of what it was."""

    def apply(folder):
        with np.load(folder / "cameras_sphere.npz") as archive:
            matrix = archive["world_mat_2"]
        change_cameras(folder, world_mat_2=change(matrix))

    return apply


def picture(name, samples):
    return lambda folder: save(folder / name, samples)


def raw(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def emptied_masks(folder):
    for path in (folder / "mask").iterdir():
        path.unlink()


def a_fifth_view(folder):
    for kind in ("image", "mask"):
        save(folder / kind / "004.png", SAME)


def black_masks(value):
    def change(folder):
        for path in (folder / "mask").iterdir():
            save(path, np.full((24, 32), value, np.uint8))

    return change


def objects(folder):
    change_cameras(folder, scale_mat_1=np.array([np.eye(4), "x"], dtype=object))


def member(content):
    """An npz whose world_mat_0 has this content."""

    def change(folder):
        with zipfile.ZipFile(folder / "cameras_sphere.npz", "w") as archive:
            archive.writestr("world_mat_0.npy", content)
            archive.writestr("scale_mat_0.npy", npy_bytes(SCALE_MAT))

    return change


def npy_bytes(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def huge_member():
    """The header of an array of 320 GB, and none of it."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**10, 4)})
    return buffer.getvalue()


SMALL = np.full((12, 32, 3), 9, np.uint8)
SAME = np.full((24, 32, 3), 9, np.uint8)
STRETCHED = np.diag([2.5, 2.5, 2.6, 1.0])
MIRRORED = np.diag([2.5, 2.5, -2.5, 1.0])

WRONG_SCENES = {
    "no photographs folder": (remove("image"), ["has no folder image/", "cameras_sphere.npz"]),
    "no camera file": (remove("cameras_sphere.npz"), ["no such camera file", "render_cameras_name"]),
    "missing world matrix": (cameras(world_mat_3=None), ["has no world_mat_3", "4 photographs"]),
    "missing scale matrix": (cameras(scale_mat_2=None), ["has no scale_mat_2"]),
    "more photographs than cameras": (a_fifth_view, ["has no world_mat_4", "5 photographs"]),
    "a mask too few": (remove("mask/002.png"), ["3 masks for 4 photographs"]),
    "an empty mask folder": (emptied_masks, ["0 masks for 4"]),
    "a smaller photograph": (picture("image/002.png", SMALL), ["002.png", "32x12", "000.png 32x24"]),
    "a smaller mask": (picture("mask/003.png", SMALL), ["mask/003.png", "32x12", "003.png 32x24"]),
    "a deeper photograph": (picture("image/001.png", SAME.astype(np.uint16)), ["001.png", "16 bits", "000.png 8"]),
    "a damaged photograph": (raw("image/001.png", b"\x89PNG\r\n\x1a\nnothing"), ["001.png", "damaged"]),
    "a text for a mask": (raw("mask/001.png", b"hello"), ["mask/001.png", "neither PNG nor JPEG"]),
    "masks all black": (black_masks(0), ["all masks are empty", "mask_weight"]),
    "masks of 0 and 1": (black_masks(1), ["all masks are empty", "1 of 255"]),
    "singular projection": (world_mat(lambda m: m[[0, 1, 1, 3]]), ["world_mat_2", "singular"]),
    "projection of zeros": (world_mat(lambda m: m * 0), ["world_mat_2", "singular"]),
    "mirrored projection": (world_mat(lambda m: m * [1, 1, -1, 1]), ["world_mat_2", "mirrored"]),
    "NaN in a projection": (world_mat(lambda m: m * np.nan), ["world_mat_2", "NaN"]),
    "infinite projection": (world_mat(lambda m: m + np.inf), ["world_mat_2", "infinite"]),
    "projection of wrong shape": (world_mat(lambda m: m[:2]), ["world_mat_2", "[2, 4]", "[3, 4] or [4, 4]"]),
    "complex projection": (world_mat(lambda m: m + 0j), ["world_mat_2", "complex128"]),
    "NaN in a scale matrix": (cameras(scale_mat_1=SCALE_MAT * np.nan), ["scale_mat_1", "NaN"]),
    "stretched scale matrix": (cameras(scale_mat_0=STRETCHED), ["scale_mat_0", "similarity"]),
    "mirrored scale matrix": (cameras(scale_mat_0=MIRRORED), ["scale_mat_0", "similarity"]),
    "scale matrix of zeros": (cameras(scale_mat_0=np.diag([0, 0, 0, 1.0])), ["scale_mat_0", "similarity"]),
    "projective scale matrix": (cameras(scale_mat_0=SCALE_MAT * 2), ["scale_mat_0", "last row"]),
    "a view with its own sphere": (cameras(scale_mat_3=similarity()), ["scale_mat_3 differs from scale_mat_0"]),
    "pickled matrices": (objects, ["cameras_sphere.npz", "cannot be read"]),
    "a pickle for a camera file": (
        raw("cameras_sphere.npz", pickle.dumps({})),
        ["cameras_sphere.npz", "cannot be read"],
    ),
    "a text for a camera file": (raw("cameras_sphere.npz", b"hello"), ["cameras_sphere.npz", "cannot be read"]),
    "an empty camera file": (raw("cameras_sphere.npz", b""), ["cameras_sphere.npz", "cannot be read"]),
    "one array for a camera file": (raw("cameras_sphere.npz", npy_bytes(np.eye(4))), ["cannot be read"]),
    "a member that is no array": (member(b"hello"), ["world_mat_0", "cannot be read"]),
    "a member cut short": (member(npy_bytes(np.eye(4))[:-8]), ["cannot be read"]),
    "a member with a huge shape": (member(huge_member()), ["cannot be read"]),
}


@pytest.mark.parametrize("name", WRONG_SCENES)
def test_a_wrong_scene_is_named_in_one_sentence(tmp_path, name):
    break_it, words = WRONG_SCENES[name]
    write_scene(tmp_path / "teapot")
    break_it(tmp_path / "teapot")
    with pytest.raises((SceneError, ImageError)) as caught:
        load(tmp_path / "teapot")
    message = str(caught.value)
    assert "teapot" in message and "\n" not in message
    assert [word for word in words if word not in message] == []


def test_a_scene_that_is_not_there_or_has_no_photographs_is_named(tmp_path):
    with pytest.raises(SceneError, match="no such folder.*data_dir"):
        load(tmp_path / "none")
    (tmp_path / "image").mkdir()
    with pytest.raises(ImageError, match="contains no .png, .jpg or .jpeg"):
        load(tmp_path)


def test_a_camera_inside_the_unit_sphere_is_named(tmp_path):
    for distance, fits in ((0.999, False), (1.001, True)):
        written = write_scene(tmp_path / str(distance), distance=distance, radius=0.3)
        if fits:
            assert load(written.folder).n_views == 4
        else:
            with pytest.raises(SceneError, match=r"view \d \(00\d.png\) is inside the unit sphere"):
                load(written.folder)


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (np.diag([1.0, 1, 0, 1]), "singular"),
        (np.eye(3), "shape"),
        (np.full((4, 4), np.nan), "NaN"),
    ],
)
def test_a_wrong_region_is_named(tmp_path, matrix, reason):
    write_scene(tmp_path)
    np.savez(tmp_path / "region.npz", scale_mat_0=matrix)
    with pytest.raises(SceneError, match=f"region.npz: scale_mat_0 .*{reason}"):
        load(tmp_path, object_cameras_name="region.npz")
    np.savez(tmp_path / "region.npz", other=1)
    with pytest.raises(SceneError, match="has no scale_mat_0"):
        load(tmp_path, object_cameras_name="region.npz")
    with pytest.raises(SceneError, match="object_cameras_name"):
        load(tmp_path, object_cameras_name="none.npz")


def test_nothing_in_a_camera_file_is_ever_executed(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    write_scene(tmp_path)
    change_cameras(tmp_path, world_mat_0=np.array([Trap()], dtype=object))
    with pytest.raises(UserError):
        load(tmp_path)
    assert not (tmp_path / "sprung").exists()
