"""Wrong scene folders that tests/bad_inputs.py does not have: each is named in one sentence."""

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


def emptied_masks(folder):
    for path in (folder / "teapot/mask").iterdir():
        path.unlink()


MIRRORED = np.diag([2.5, 2.5, -2.5, 1.0])

WRONG_SCENES = {
    "no photographs folder": (
        lambda folder: shutil.rmtree(folder / "teapot/image"),
        ["has no folder image/", "cameras_sphere.npz"],
    ),
    "missing scale matrix": (cameras(scale_mat_2=None), ["has no scale_mat_2"]),
    "more photographs than cameras": (
        then(*(picture(f"teapot/{kind}/004.png", SAME) for kind in ("image", "mask"))),
        ["has no world_mat_4", "5 photographs"],
    ),
    "an empty mask folder": (emptied_masks, ["0 masks for 4"]),
    "projection of zeros": (world_mat(lambda m: m * 0), ["world_mat_2", "singular"]),
    "mirrored projection": (world_mat(lambda m: m * [1, 1, -1, 1]), ["world_mat_2", "mirrored"]),
    "infinite projection": (world_mat(lambda m: m + np.inf), ["world_mat_2", "infinite"]),
    "projection of wrong shape": (world_mat(lambda m: m[:2]), ["world_mat_2", "[2, 4]", "[3, 4] or [4, 4]"]),
    "NaN in a scale matrix": (cameras(scale_mat_1=SCALE_MAT * np.nan), ["scale_mat_1", "NaN"]),
    "mirrored scale matrix": (cameras(scale_mat_0=MIRRORED), ["scale_mat_0", "similarity"]),
    "scale matrix of zeros": (cameras(scale_mat_0=np.diag([0, 0, 0, 1.0])), ["scale_mat_0", "similarity"]),
    "projective scale matrix": (cameras(scale_mat_0=SCALE_MAT * 2), ["scale_mat_0", "last row"]),
    "a view with its own sphere": (cameras(scale_mat_3=similarity()), ["scale_mat_3 differs from scale_mat_0"]),
    "an empty camera file": (content(NPZ, b""), ["cameras_sphere.npz", "cannot be read"]),
    "one array for a camera file": (content(NPZ, npy(np.eye(4))), ["cannot be read"]),
    "a member that is no array": (members(world_mat_0=b"hello"), ["world_mat_0", "cannot be read"]),
}


@pytest.mark.parametrize("name", WRONG_SCENES)
def test_a_wrong_scene_is_named_in_one_sentence(tmp_path, name):
    break_it, words = WRONG_SCENES[name]
    write_scene(tmp_path / "teapot")
    break_it(tmp_path)
    with pytest.raises((SceneError, ImageError)) as caught:
        load(tmp_path / "teapot")
    message = str(caught.value)
    assert "teapot" in message and "\n" not in message
    assert [word for word in words if word not in message] == []


def test_a_scene_that_is_not_there_or_has_no_photographs_is_named(tmp_path):
    with pytest.raises(SceneError, match="no such folder.*data_dir"):
        load(tmp_path / "none")
    (tmp_path / "image").mkdir()
    with pytest.raises(ImageError, match="contains no .png, .jpg, .jpeg or .webp"):
        load(tmp_path)


def test_a_camera_inside_the_unit_sphere_is_named(tmp_path):
    for distance, fits in ((0.999, False), (1.001, True)):
        written = write_scene(tmp_path / str(distance), distance=distance, radius=0.3)
        if fits:
            assert load(written.folder).n_views == 4
        else:
            with pytest.raises(SceneError, match=r"view \d \(00\d.png\) is inside the unit sphere"):
                load(written.folder)


def test_a_camera_in_the_middle_is_refused_unless_a_place_is_photographed_from_within(tmp_path):
    scene = load(write_scene(tmp_path, distance=1.5).folder)
    for scale, turn, fits in ((1.0, 1.0, False), (0.5, 1.0, False), (0.5, -1.0, True)):
        c2w = scene.c2w @ np.diag([turn, 1.0, turn, 1.0])
        c2w[:, :3, 3] *= scale
        c2w[2, :3, 3] = -0.01 * scene.c2w[2, :3, 2]
        if fits:
            check_scene(replace(scene, c2w=c2w), cameras_outside=False)
        else:
            with pytest.raises(SceneError, match="the camera of view 2 .002.png. is 0.01 radii from the centre"):
                check_scene(replace(scene, c2w=c2w), cameras_outside=False)


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
