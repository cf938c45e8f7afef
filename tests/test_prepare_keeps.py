"""A preparation replaces and removes what it made itself, and nothing else of its user's."""

import os
import shutil

import numpy as np
import pytest
from preparations import N_VIEWS, give_masks, lines_of, read, refuse
from rendered_photographs import write_photographs

from data.io.images import list_images, write_image
from data.prepare.owned_files import RECORD, made_here

pytestmark = pytest.mark.slow  # it prepares photographs


def write_mine(scene, *names):
    """Files of the user's own in these places."""
    for name in names:
        (scene / name).parent.mkdir(parents=True, exist_ok=True)
        (scene / name).write_bytes(b"mine")


def test_what_its_user_put_into_a_scene_stays(copied_scene):
    scene = copied_scene / "scene"
    shutil.copytree(scene / "image", scene / "mask")
    foreign = ["image/notes.txt", "sparse/0/cameras.bin", "prepare/mine.txt", "mask/mine.txt"]
    write_mine(scene, *foreign)
    roi = " ".join(map(str, [*read(scene).scene_to_world[:3, 3], 2.0]))
    said = lines_of(copied_scene, roi=roi, overwrite=True)
    assert [(scene / name).read_bytes() for name in foreign] == [b"mine"] * len(foreign)
    assert len(list_images(scene / "mask")) == N_VIEWS and read(scene).masks is not None
    assert any("mask/000.png" in line and "not made by --mode prepare, unchanged" in line for line in said)
    given = give_masks(copied_scene)
    before = {path: path.stat().st_mtime_ns for path in scene.rglob("*") if path.is_file()}
    refuse("mask/000.png.*: exists and was not made by --mode prepare", copied_scene, masks=given, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in scene.rglob("*") if path.is_file()} == before


def test_what_was_not_made_here_is_never_overwritten(tmp_path):
    write_photographs(tmp_path / "photos", 3)
    image = tmp_path / "scene" / "image"
    write_mine(tmp_path / "scene", "image/000.png")
    for overwrite in (False, True):
        refuse("image/000.png: exists and was not made by --mode prepare", tmp_path, overwrite=overwrite)
    image.rename(tmp_path / "mine")
    image.symlink_to(tmp_path / "mine")
    refuse("scene/image: it is a symbolic link", tmp_path, overwrite=True)
    assert [path.read_bytes() for path in (tmp_path / "mine").iterdir()] == [b"mine"]
    image.unlink()
    write_mine(tmp_path / "scene/prepare/images", "mine.png")
    refuse("prepare/images: was not made by --mode prepare", tmp_path, overwrite=True)
    assert (tmp_path / "scene/prepare/images/mine.png").read_bytes() == b"mine"


def test_a_failure_leaves_what_its_user_had_in_the_work_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    for index in range(4):
        write_image(tmp_path / "photos" / f"{index}.png", np.full((120, 160, 3), 90 + index, np.uint8))
    write_mine(tmp_path / "scene/prepare", "mine.txt")
    refuse("none of the 4 photographs has 15 points in common with another", tmp_path)
    assert [path.name for path in (tmp_path / "scene" / "prepare").iterdir()] == ["mine.txt"]


RECORDS = ["", "5", "[[3]]", '{"names": [[3]]}', "[" * 100000, '{"names": ["../../x", "/x", "image/../x", "notes"]}']


@pytest.mark.parametrize("content", [None, *RECORDS])
def test_a_record_that_is_none_names_no_file_of_others(tmp_path, content):
    write_mine(tmp_path, "image/000.png", "mask/000.png", "image/notes.txt", "prepare/x")
    if content is not None:
        (tmp_path / "prepare" / RECORD).write_text(content)
    assert made_here(tmp_path / "prepare", tmp_path) <= {"image/000.png"}


NO_FILES = [("link", ".prepare.lock"), ("link", "colmap.log"), ("link", "database")]
NO_FILES += [("pipe", ".prepare.lock"), ("pipe", "colmap.log")]


@pytest.mark.parametrize(("kind", "name"), NO_FILES)
def test_what_is_no_file_of_ours_is_named_and_not_written_through(tmp_path, kind, name):
    write_photographs(tmp_path / "photos", 3)
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "scene" / "prepare" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
    refuse(rf"prepare/{name}: is .*remove it$", tmp_path)
    assert os.path.lexists(path) and list((tmp_path / "elsewhere").iterdir()) == []
