"""A scene folder: what is damaged is made again, what its user put there stays, and one call at a time uses it."""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import cv2
import numpy as np
import pytest
from preparations import N_VIEWS, give_masks, lines_of, read, refuse, request
from rendered_photographs import write_photographs

from data.io.images import list_images, read_image, write_image
from data.prepare.pipeline import prepare
from data.prepare.products import RECORD, made_here, only_one
from data.prepare.sfm.matches import is_sound, read_links

pytestmark = pytest.mark.slow  # it prepares photographs

PICTURES = [f"{number:04d}.png" for number in range(N_VIEWS)]
DATABASE = "database/matches.db"


def sql(path, command):
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        opened.execute(command)


def stamps_that_are_no_files(work):
    for name in ("features", "cameras"):
        (work / f"{name}.json").unlink()
    (work / "features.json").mkdir()
    os.mkfifo(work / "cameras.json")


def empty(*paths):
    for path in paths:
        if path.is_file():
            path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DATABASES = {
    "garbage": lambda path: path.write_bytes(b"not a database" * 999),
    "foreign": lambda path: sql(path, "UPDATE descriptors SET data = x'00'"),
    "none": Path.unlink,
}
DAMAGE = {
    "no model": lambda work: shutil.rmtree(work / "sparse"),
    "stamps that are no files": stamps_that_are_no_files,
    "empty files": lambda work: empty(*work.rglob("*")),
}


@pytest.mark.parametrize("name", DATABASES)
def test_a_damaged_database_is_known_without_colmap(copied_scene, name):
    database = copied_scene / "scene" / "prepare" / DATABASE
    assert is_sound(database) and len(read_links(database, dict.fromkeys(PICTURES, "a"))) == 1
    DATABASES[name](database)
    assert not is_sound(database)


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_is_done_again(copied_scene, name):
    DAMAGE[name](copied_scene / "scene" / "prepare")
    assert prepare(request(copied_scene, overwrite=True), str)
    assert read(copied_scene / "scene").n_views == N_VIEWS
    assert not prepare(request(copied_scene), str), "and is whole from then on"


def test_one_damaged_step_does_not_repeat_the_long_ones(copied_scene):
    empty(copied_scene / "scene" / "prepare" / "images" / "0001.png")
    said = lines_of(copied_scene, overwrite=True)
    assert "photographs: the result of an earlier run is damaged, missing or not usable; done again" in said
    assert {"features: done before", "matches: done before", "cameras: done before"} < set(said)


@pytest.mark.parametrize(("name", "damage"), [("image/002.png", Path.unlink), ("sparse/points.ply", empty)])
def test_a_scene_that_was_damaged_is_written_again(copied_scene, damage, name):
    before = (copied_scene / "scene" / name).read_bytes()
    damage(copied_scene / "scene" / name)
    assert f"{name}: missing or damaged; the scene is written again" in lines_of(copied_scene)
    assert (copied_scene / "scene" / name).read_bytes() == before
    cut(copied_scene / "scene/cameras_sphere.npz")
    assert lines_of(copied_scene) and read(copied_scene / "scene").n_views == N_VIEWS


def test_what_its_user_changed_is_not_undone(copied_scene):
    retouched = cv2.imencode(".png", np.zeros((240, 320, 3), np.uint8))[1].tobytes()
    picture = copied_scene / "scene" / "image" / "001.png"
    picture.write_bytes(retouched)
    assert not prepare(request(copied_scene), str)
    (copied_scene / "scene" / "overview.png").unlink()
    refuse("overview.png: missing or damaged, and image/001.png: changed since; restore", copied_scene)
    assert picture.read_bytes() == retouched
    assert prepare(request(copied_scene, overwrite=True), str) and read_image(picture).any()


def test_what_an_interrupted_run_left_is_not_trusted_if_it_gives_nothing(copied_scene):
    work = copied_scene / "scene" / "prepare"
    (work / "cameras.json").unlink()
    sql(work / DATABASE, "UPDATE two_view_geometries SET rows = 0, data = NULL")  # whole and sound, and wrong
    said = lines_of(copied_scene, overwrite=True)
    assert any("features, matches and cameras are redone" in line for line in said)
    assert read(copied_scene / "scene").n_views == N_VIEWS


def test_a_second_preparation_is_refused_while_the_first_lives(tmp_path):
    write_photographs(tmp_path / "photos", 3)
    with only_one(tmp_path / "scene" / "prepare"):
        before = sorted(tmp_path.rglob("*"))
        refuse(rf"another --mode prepare \(process {os.getpid()}\) is running in .*scene: wait", tmp_path)
        assert sorted(tmp_path.rglob("*")) == before
    assert not (tmp_path / "scene").exists()


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


def test_a_failure_leaves_what_its_user_had_in_the_work_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    for index in range(4):
        write_image(tmp_path / "photos" / f"{index}.png", np.full((120, 160, 3), 90 + index, np.uint8))
    write_mine(tmp_path / "scene/prepare", "mine.txt")
    refuse("none of the 4 photographs has 15 points in common with another", tmp_path)
    assert [path.name for path in (tmp_path / "scene" / "prepare").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("content", [None, "[[3]]", '{"names": ["../../x", "/x", "image/../x", "notes"]}'])
def test_a_record_that_is_none_names_no_file_of_others(tmp_path, content):
    write_mine(tmp_path, "image/000.png", "mask/000.png", "image/notes.txt", "prepare/x")
    if content is not None:
        (tmp_path / "prepare" / RECORD).write_text(content)
    assert made_here(tmp_path / "prepare", tmp_path) <= {"image/000.png"}


@pytest.mark.parametrize(("kind", "name"), [("link", "database"), ("pipe", ".prepare.lock")])
def test_what_is_no_file_of_ours_is_named_and_not_written_through(tmp_path, kind, name):
    write_photographs(tmp_path / "photos", 3)
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "scene" / "prepare" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
    refuse(rf"prepare/{name}: is .*remove it$", tmp_path)
    assert os.path.lexists(path) and list((tmp_path / "elsewhere").iterdir()) == []
