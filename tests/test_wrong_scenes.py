"""Wrong scene folders that tests/bad_inputs.py does not have: each is named in one sentence."""

import contextlib
import shutil
from dataclasses import replace

import numpy as np
import pytest
from bad_input_builders import NPZ, SAME, cameras, content, members, npy, picture, then
from synthetic_scene import SCALE_MAT, dataset_config, similarity, write_scene

from data.errors import SceneError
from data.io.images import ImageError
from data.scenes.load import load_scene
from data.scenes.scene import check_scene


def load(folder, **changes):
    return load_scene(dataset_config(folder, **changes))


def world_mat(change):
    """Rewrite world_mat_2 by a function of what it was."""

    def apply(folder):
        with np.load(folder / NPZ) as archive:
            matrix = archive["world_mat_2"]
        cameras(world_mat_2=change(matrix))(folder)

    return apply


def emptied(kind):
    return lambda folder: [path.unlink() for path in (folder / "teapot" / kind).iterdir()]


EXTRA = then(*(picture(f"teapot/{kind}/004.png", SAME) for kind in ("image", "mask")))
WRONG_SCENES = [
    (lambda folder: shutil.rmtree(folder / "teapot"), ["no such folder", "data_dir"]),
    (lambda folder: shutil.rmtree(folder / "teapot/image"), ["has no folder image/", "cameras_sphere.npz"]),
    (emptied("image"), ["contains no .png, .jpg, .jpeg or .webp"]),
    (emptied("mask"), ["0 masks for 4"]),
    (EXTRA, ["has no world_mat_4", "5 photographs"]),
    (cameras(scale_mat_2=None), ["has no scale_mat_2"]),
    (world_mat(lambda m: m * 0), ["world_mat_2", "singular"]),
    (world_mat(lambda m: m * [1, 1, -1, 1]), ["world_mat_2", "mirrored"]),
    (world_mat(lambda m: m + np.inf), ["world_mat_2", "infinite"]),
    (world_mat(lambda m: m[:2]), ["world_mat_2", "[2, 4]", "[3, 4] or [4, 4]"]),
    (cameras(scale_mat_1=SCALE_MAT * np.nan), ["scale_mat_1", "NaN"]),
    (cameras(scale_mat_0=np.diag([2.5, 2.5, -2.5, 1.0])), ["scale_mat_0", "similarity"]),
    (cameras(scale_mat_0=SCALE_MAT * 2), ["scale_mat_0", "last row"]),
    (cameras(scale_mat_3=similarity()), ["scale_mat_3 differs from scale_mat_0"]),
    (content(NPZ, b""), ["cameras_sphere.npz", "cannot be read"]),
    (content(NPZ, npy(np.eye(4))), ["cannot be read"]),
    (members(world_mat_0=b"hello"), ["world_mat_0", "cannot be read"]),
]


@pytest.mark.parametrize(("break_it", "words"), WRONG_SCENES, ids=[words[0] for _, words in WRONG_SCENES])
def test_a_wrong_scene_is_named_in_one_sentence(tmp_path, break_it, words):
    write_scene(tmp_path / "teapot")
    break_it(tmp_path)
    with pytest.raises((SceneError, ImageError)) as caught:
        load(tmp_path / "teapot")
    message = str(caught.value)
    assert "teapot" in message and "\n" not in message
    assert [word for word in words if word not in message] == []


def test_a_camera_inside_the_unit_sphere_is_named(tmp_path):
    assert load(write_scene(tmp_path / "out", distance=1.001, radius=0.3).folder).n_views == 4
    with pytest.raises(SceneError, match=r"view \d \(00\d.png\) is inside the unit sphere"):
        load(write_scene(tmp_path / "in", distance=0.999, radius=0.3).folder)


def test_a_camera_in_the_middle_fits_a_place_photographed_from_within(tmp_path):
    scene = load(write_scene(tmp_path, distance=1.5).folder)
    for scale, turn, words in (
        (1.0, 1.0, "view 2 .002.png. is 0.01 radii"),
        (0.5, 1.0, "from the centre"),
        (0.5, -1, ""),
    ):
        c2w = scene.c2w @ np.diag([turn, 1.0, turn, 1.0])
        c2w[:, :3, 3] *= scale
        c2w[2, :3, 3] = -0.01 * scene.c2w[2, :3, 2]
        with pytest.raises(SceneError, match=words) if words else contextlib.nullcontext():
            check_scene(replace(scene, c2w=c2w), cameras_outside=False)


def test_a_wrong_region_is_named(tmp_path):
    write_scene(tmp_path)
    for matrix, reason in ((np.diag([1.0, 1, 0, 1]), "singular"), (np.eye(3), "shape"), (np.eye(4) * np.nan, "NaN")):
        np.savez(tmp_path / "region.npz", scale_mat_0=matrix)
        with pytest.raises(SceneError, match=f"region.npz: scale_mat_0 .*{reason}"):
            load(tmp_path, object_cameras_name="region.npz")
    np.savez(tmp_path / "region.npz", other=1)
    for name, words in (("region.npz", "has no scale_mat_0"), ("none.npz", "object_cameras_name")):
        with pytest.raises(SceneError, match=words):
            load(tmp_path, object_cameras_name=name)
