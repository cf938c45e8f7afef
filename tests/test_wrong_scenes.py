"""Wrong scene folders that tests/bad_inputs.py does not have: one sentence each, which names the true cause."""

import contextlib
import errno
import shutil
from dataclasses import replace

import colmap_files
import cv2
import numpy as np
import pytest
from bad_input_builders import NPZ, SAME, cameras, picture, then
from broken_scenes import CAMERAS, WRITERS, edit
from synthetic_scene import SCALE_MAT, dataset_config, save, similarity, write_scene

from data.errors import SceneError, UserError
from data.io.headers import ImageError
from data.prepare.load import load_scene
from data.scenes.scene_checks import check_scene


def load(folder, **changes):
    return load_scene(dataset_config(folder, **changes))


def world_mat(change):
    """Rewrite world_mat_2 by a function of what it was."""

    def apply(folder):
        with np.load(folder / NPZ) as archive:
            matrix = archive["world_mat_2"]
        cameras(world_mat_2=change(matrix))(folder)

    return apply


EXTRA = then(*(picture(f"teapot/{kind}/004.png", SAME) for kind in ("image", "mask")))
WRONG_SCENES = [
    (lambda folder: shutil.rmtree(folder / "teapot/image"), ["has no folder image/", "cameras_sphere.npz"]),
    (EXTRA, ["has no world_mat_4", "5 photographs"]),
    (world_mat(lambda m: m * 0), ["world_mat_2", "singular"]),
    (world_mat(lambda m: m * [1, 1, -1, 1]), ["world_mat_2", "mirrored"]),
    (cameras(scale_mat_0=np.diag([2.5, 2.5, -2.5, 1.0])), ["scale_mat_0", "similarity"]),
    (cameras(scale_mat_0=SCALE_MAT * 2), ["scale_mat_0", "last row"]),
    (cameras(scale_mat_3=similarity()), ["scale_mat_3 differs from scale_mat_0"]),
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
    singular = "region.npz: scale_mat_0 .*singular"
    np.savez(tmp_path / "region.npz", scale_mat_0=np.diag([1.0, 1, 0, 1]))
    for name, words in (("region.npz", singular), ("none.npz", "object_cameras_name")):
        with pytest.raises(SceneError, match=words):
            load(tmp_path, object_cameras_name=name)


# the true cause


def refusal(folder, **settings):
    with pytest.raises(UserError) as caught:
        load(folder, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_flag_the_size_and_the_lens_are_blamed_for_their_own(tmp_path):
    WRITERS["ngp"](tmp_path / "ngp")
    edit(lambda content: content["frames"][2].update(cx=1e6))(tmp_path / "ngp" / CAMERAS["ngp"])
    message = refusal(tmp_path / "ngp")
    assert "view_2.png" in message and "principal point" in message and "1e+06" in message
    assert "distortion" not in message
    write_scene(tmp_path / "neus", n_views=6, size=(120, 160))
    colmap_files.write_project(tmp_path / "colmap", "bin")
    for roi in ("1e308 0 0 1", "0 0 0 1e308", "0 0 0 1e-308", "nan 0 0 1"):
        for kind in ("neus", "colmap"):
            message = refusal(tmp_path / kind, roi=roi)
            assert message.startswith(f'--roi "{roi}"') and "world_mat" not in message
    for path in (tmp_path / "neus").glob("*/*.png"):
        save(path, cv2.resize(cv2.imread(str(path)), (20, 15)))
    message = refusal(tmp_path / "neus")
    assert "images of another size" in message and "20x15 pixels" in message and "look away" not in message
    write_scene(tmp_path / "inside", distance=0.9, radius=0.3)
    message = refusal(tmp_path / "inside")
    assert "--roi" in message and "scale_mat" not in message


def test_a_full_disk_is_not_blamed_on_the_scene(tmp_path, monkeypatch):
    write_scene(tmp_path)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data.prepare.load.adjusted", full)
    message = refusal(tmp_path, refine_cameras="poses")
    assert "has no space left" in message and "TMPDIR" in message and "permissions" not in message


def test_pictures_that_are_not_read_are_named(tmp_path):
    write_scene(tmp_path)
    for folder in (
        "image",
        "mask",
    ):  # a picture of a phone, one of the web and a link that leads nowhere, beside the others
        for name in ("IMG_1.HEIC", "b.gif", "notes.txt", ".hidden.heic"):
            (tmp_path / folder / name).write_bytes(b"x")
        (tmp_path / folder / "c.png").symlink_to("nowhere.png")
    notes = [note for note in load(tmp_path).notes if "left out, as only" in note]
    assert len(notes) == 2 and all(
        note.endswith("are read: b.gif, c.png (a broken link) and IMG_1.HEIC") for note in notes
    )
    for path in (tmp_path / "image").iterdir():
        path.rename(path.with_suffix(".heic"))
    message = refusal(tmp_path)
    assert "contains no .png" in message and "0.heic" in message and "convert them" in message
