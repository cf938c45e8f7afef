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


@pytest.mark.parametrize("kind", ["ngp", "nerfstudio"])
def test_a_principal_point_far_off_is_no_distortion(kind, tmp_path):
    WRITERS[kind](tmp_path)
    edit(lambda content: content["frames"][2].update(cx=1e6))(tmp_path / CAMERAS[kind])
    message = refusal(tmp_path)
    assert "view_2.png" in message and "principal point" in message and "1e+06" in message
    assert "distortion" not in message


@pytest.mark.parametrize("roi", ["1e308 0 0 1", "0 0 0 1e308", "0 -1e300 0 1", "0 0 0 1e-308", "nan 0 0 1"])
@pytest.mark.parametrize("kind", ["neus", "colmap"])
def test_a_region_beyond_all_numbers_is_blamed_on_the_flag(kind, roi, tmp_path):
    write_scene(tmp_path) if kind == "neus" else colmap_files.write_project(tmp_path, "bin")
    message = refusal(tmp_path, roi=roi)
    assert message.startswith(f'--roi "{roi}"') and "world_mat" not in message


def test_pictures_of_another_size_are_not_cameras_that_look_away(tmp_path):
    write_scene(tmp_path, n_views=6, size=(120, 160))
    for path in (*(tmp_path / "image").iterdir(), *(tmp_path / "mask").iterdir()):
        save(path, cv2.resize(cv2.imread(str(path)), (20, 15)))
    message = refusal(tmp_path)
    assert "images of another size" in message and "20x15 pixels" in message and "look away" not in message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_blamed_on_the_scene(number, tmp_path, monkeypatch):
    colmap_files.write_project(tmp_path, "bin")

    def full(*args, **kwargs):
        raise OSError(number, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryDirectory", full)
    message = refusal(tmp_path)
    assert "has no space left" in message and "TMPDIR" in message and "permissions" not in message


def spoilt(folder):
    """A picture of a phone, one of the web and a link that leads nowhere, beside the others."""
    (folder / "IMG_1.HEIC").write_bytes(b"x")
    (folder / "b.gif").write_bytes(b"GIF89a")
    (folder / "c.png").symlink_to(folder / "nowhere.png")
    (folder / "notes.txt").write_text("not a photograph")
    (folder / ".hidden.heic").write_bytes(b"x")


@pytest.mark.parametrize(
    ("kind", "write", "folders"),
    [
        ("neus", lambda folder: write_scene(folder), ("image", "mask")),
        ("llff", WRITERS["llff"], ("images",)),
        ("colmap", lambda folder: colmap_files.write_project(folder, "bin"), ("images",)),
    ],
)
def test_pictures_that_are_not_read_are_named(kind, write, folders, tmp_path):
    write(tmp_path)
    for folder in folders:
        spoilt(tmp_path / folder)
    notes = [note for note in load_scene(dataset_config(tmp_path, type=kind)).notes if "left out, as only" in note]
    assert len(notes) == len(folders)
    for note in notes:
        assert note.endswith("are read: b.gif, c.png (a broken link) and IMG_1.HEIC")


@pytest.mark.parametrize(("kind", "folder"), [("neus", "image"), ("llff", "images")])
def test_a_folder_of_such_pictures_alone_says_what_it_holds(kind, folder, tmp_path):
    write_scene(tmp_path) if kind == "neus" else WRITERS["llff"](tmp_path)
    for path in (tmp_path / folder).iterdir():
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


def test_a_camera_inside_the_sphere_is_advice_for_every_format(tmp_path):
    write_scene(tmp_path, distance=0.9, radius=0.3)
    message = refusal(tmp_path)
    assert "--roi" in message and "scale_mat" not in message


@pytest.mark.parametrize("corners", [np.zeros((3, 3)), np.diag([1.0, 2.0, 0]) @ np.ones((3, 3)), 1e200 * np.eye(3)])
@pytest.mark.parametrize("suffix", [".ply", ".obj", ".stl"])
def test_a_reference_mesh_without_area_is_a_sentence(corners, suffix, tmp_path):
    path = tmp_path / f"flat{suffix}"
    path.write_bytes(
        trimesh.Trimesh(corners, [[0, 1, 2]], process=False).export(None, file_type=suffix[1:])
        if suffix != ".obj"
        else obj(corners).encode()
    )
    with pytest.raises(UserError, match=f"flat{suffix}: .*(area|NaN or infinite)"):
        read_mesh(path)


def obj(corners):
    return "".join(f"v {x!r} {y!r} {z!r}\n" for x, y, z in corners.tolist()) + "f 1 2 3\n"


def test_a_reference_mesh_with_a_name_beyond_any_file_system_is_a_sentence(tmp_path):
    for path in (tmp_path / f"{'a' * 300}.ply", Path("/".join(["a" * 200] * 30) + ".ply")):
        with pytest.raises(UserError, match="cannot be read .*check the path"):
            read_mesh(path)
    link = tmp_path / "self.ply"
    link.symlink_to(link)
    with pytest.raises(UserError, match="self.ply: no such mesh file"):
        read_mesh(link)
