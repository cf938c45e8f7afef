"""Errors of a scene name the true cause, without further omissions or warnings."""

import errno
import warnings
from pathlib import Path

import colmap_files
import cv2
import numpy as np
import pytest
import trimesh
from broken_scenes import CAMERAS, WRITERS, edit
from synthetic_scene import dataset_config, save, write_scene

from data.errors import UserError
from data.io.images import read_image
from data.scenes.load import load_scene
from models.evaluation.mesh_distance import read_mesh


def refusal(folder, **settings):
    with pytest.raises(UserError) as caught:
        load_scene(dataset_config(folder, **settings))
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
    colmap_files.write_project(tmp_path, "bin")
    for number in (errno.ENOSPC, errno.EDQUOT):

        def full(*args, number=number, **kwargs):
            raise OSError(number, "No space left on device")

        monkeypatch.setattr("tempfile.TemporaryDirectory", full)
        message = refusal(tmp_path)
        assert "has no space left" in message and "TMPDIR" in message and "permissions" not in message


@pytest.mark.parametrize(
    ("kind", "write", "folders"), [("neus", write_scene, ["image", "mask"]), ("llff", WRITERS["llff"], ["images"])]
)
def test_pictures_that_are_not_read_are_named(kind, write, folders, tmp_path):
    write(tmp_path)
    for folder in folders:  # a picture of a phone, one of the web and a link that leads nowhere, beside the others
        for name in ("IMG_1.HEIC", "b.gif", "notes.txt", ".hidden.heic"):
            (tmp_path / folder / name).write_bytes(b"x")
        (tmp_path / folder / "c.png").symlink_to("nowhere.png")
    notes = [note for note in load_scene(dataset_config(tmp_path, type=kind)).notes if "left out, as only" in note]
    assert len(notes) == len(folders)
    assert all(note.endswith("are read: b.gif, c.png (a broken link) and IMG_1.HEIC") for note in notes)
    for path in (tmp_path / folders[0]).iterdir():
        path.rename(path.with_suffix(".heic"))
    message = refusal(tmp_path, type=kind)
    assert "contains no .png" in message and "0.heic" in message and "convert them" in message


def test_a_warning_of_a_library_stays_off_the_terminal(tmp_path, monkeypatch):
    def warned(path):
        warnings.warn("a library's own words", RuntimeWarning, stacklevel=1)
        return read_image(path)

    write_scene(tmp_path)
    monkeypatch.setattr("data.scenes.preprocess.read_image", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_scene(dataset_config(tmp_path)).n_views == 4


@pytest.mark.parametrize("corners", [np.zeros((3, 3)), np.diag([1.0, 2.0, 0]) @ np.ones((3, 3)), 1e200 * np.eye(3)])
@pytest.mark.parametrize("suffix", [".ply", ".obj"])
def test_a_reference_mesh_without_area_is_a_sentence(corners, suffix, tmp_path):
    path = tmp_path / f"flat{suffix}"
    if suffix == ".obj":
        path.write_text("".join(f"v {x!r} {y!r} {z!r}\n" for x, y, z in corners.tolist()) + "f 1 2 3\n")
    else:
        trimesh.Trimesh(corners, [[0, 1, 2]], process=False).export(path)
    with pytest.raises(UserError, match=f"flat{suffix}: .*(area|NaN or infinite)"):
        read_mesh(path)


def test_a_reference_mesh_with_an_impossible_name_is_a_sentence(tmp_path):
    link = tmp_path / "self.ply"
    link.symlink_to(link)
    long, deep = tmp_path / f"{'a' * 300}.ply", Path("/".join(["a" * 200] * 30) + ".ply")
    for path, words in (
        (long, "cannot be read .*check"),
        (deep, "cannot be read .*check"),
        (link, "no such mesh file"),
    ):
        with pytest.raises(UserError, match=words):
            read_mesh(path)
