"""A preparation replaces and removes what it made itself, and nothing else of its user's."""

import shutil

import numpy as np
import pytest
import rendered_photographs
from preparations import N_VIEWS, read, request

from data.errors import UserError
from data.io.images import list_images, read_image, write_image
from data.prepare.owned_files import RECORD, made_here
from data.prepare.pipeline import prepare

pytestmark = pytest.mark.slow  # it prepares photographs


def give_masks(folder):
    """A folder `given` with a mask for each photograph."""
    (folder / "given").mkdir()
    for index, path in enumerate(list_images(folder / "photos")):
        mask = np.zeros(read_image(path).shape[:2], np.uint8)
        mask[40:200, 60 : 200 + index] = 255
        write_image(folder / "given" / f"photo_{index}.png", mask)


def test_masks_of_an_earlier_scene_do_not_stay(copied_scene):
    give_masks(copied_scene)
    assert prepare(request(copied_scene, masks=str(copied_scene / "given"), overwrite=True), str)
    assert (copied_scene / "scene" / "mask").is_dir()
    assert prepare(request(copied_scene, overwrite=True), str)
    assert not (copied_scene / "scene" / "mask").exists() and not (copied_scene / "scene" / "masks.png").exists()


def test_what_its_user_put_into_a_scene_stays(copied_scene):
    scene = copied_scene / "scene"
    shutil.copytree(scene / "image", scene / "mask")
    foreign = ["image/notes.txt", "sparse/0/cameras.bin", "prepare/mine.txt", "mask/mine.txt"]
    for name in foreign:
        (scene / name).parent.mkdir(exist_ok=True)
        (scene / name).write_bytes(b"mine")
    said = []
    roi = " ".join(map(str, [*read(scene).scene_to_world[:3, 3], 2.0]))
    assert prepare(request(copied_scene, roi=roi, overwrite=True), said.append)
    assert [(scene / name).read_bytes() for name in foreign] == [b"mine"] * len(foreign)
    assert len(list_images(scene / "mask")) == N_VIEWS and read(scene).masks is not None
    assert any("mask/000.png" in line and "not made by --mode prepare, unchanged" in line for line in said)
    give_masks(copied_scene)
    before = {path: path.stat().st_mtime_ns for path in scene.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="mask/000.png.*: exists and was not made by --mode prepare"):
        prepare(request(copied_scene, masks=str(copied_scene / "given"), overwrite=True), str)
    assert {path: path.stat().st_mtime_ns for path in scene.rglob("*") if path.is_file()} == before


def test_what_was_not_made_here_is_never_overwritten(tmp_path):
    rendered_photographs.write_photographs(tmp_path / "photos", 3)
    (tmp_path / "scene" / "image").mkdir(parents=True)
    (tmp_path / "scene" / "image" / "000.png").write_bytes(b"mine")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="image/000.png: exists and was not made by --mode prepare"):
            prepare(request(tmp_path, overwrite=overwrite), str)
    (tmp_path / "scene" / "image").rename(tmp_path / "mine")
    (tmp_path / "scene" / "image").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="scene/image: it is a symbolic link"):
        prepare(request(tmp_path, overwrite=True), str)
    assert [path.read_bytes() for path in (tmp_path / "mine").iterdir()] == [b"mine"]


def test_a_work_folder_that_is_its_users_own_is_not_touched(tmp_path):
    rendered_photographs.write_photographs(tmp_path / "photos", 3)
    mine = tmp_path / "scene" / "prepare" / "images" / "mine.png"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    with pytest.raises(UserError, match="prepare/images: was not made by --mode prepare"):
        prepare(request(tmp_path, overwrite=True), str)
    assert mine.read_bytes() == b"mine"


def test_a_failure_leaves_what_its_user_had_in_the_work_folder(tmp_path):
    for index in range(4):
        (tmp_path / "photos").mkdir(exist_ok=True)
        write_image(tmp_path / "photos" / f"{index}.png", np.full((120, 160, 3), 90 + index, np.uint8))
    (tmp_path / "scene" / "prepare").mkdir(parents=True)
    (tmp_path / "scene" / "prepare" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="none of the 4 photographs"):
        prepare(request(tmp_path), str)
    assert [path.name for path in (tmp_path / "scene" / "prepare").iterdir()] == ["mine.txt"]


RECORDS = [
    None,
    "",
    "5",
    "[[3]]",
    '{"names": [[3]]}',
    "[" * 100000,
    '{"names": ["../../x", "/x", "image/../x", "notes"]}',
]


@pytest.mark.parametrize("content", RECORDS)
def test_a_record_that_is_none_names_no_file_of_others(tmp_path, content):
    work, target = tmp_path / "scene" / "prepare", tmp_path / "scene"
    for name in ("image/000.png", "mask/000.png", "image/notes.txt", "prepare/x"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(b"")
    if content is not None:
        (work / RECORD).write_text(content)
    assert made_here(work, target) <= {"image/000.png"}
