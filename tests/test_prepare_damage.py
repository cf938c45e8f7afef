"""A damaged prepare folder is repaired by the next call; two calls cannot use one folder at the same time."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from preparations import N_VIEWS, lines_of, read, refuse, request
from rendered_photographs import write_photographs

from data.errors import UserError
from data.io.child import run_apart
from data.io.images import read_image
from data.prepare.database import is_sound, read_links
from data.prepare.lock import LOCK_NAME, only_one
from data.prepare.pipeline import prepare

pytestmark = pytest.mark.slow  # it prepares photographs

PICTURES = [f"{number:04d}.png" for number in range(N_VIEWS)]
DATABASE = "database/matches.db"


def sql(path, command):
    with contextlib.closing(sqlite3.connect(path)) as opened, opened:
        opened.execute(command)


def restamped(work, **results):
    """Results as a version without checksums would have written them."""
    for name, result in results.items():
        key = json.loads((work / f"{name}.json").read_text())["key"]
        (work / f"{name}.json").write_text(json.dumps({"key": key, "result": result}))


def picture_that_is_a_link_to_nowhere(work):
    (work / "images" / "0001.png").unlink()
    (work / "images" / "0001.png").symlink_to("/nowhere/at/all.png")


def stamps_that_are_no_files(work):
    for name in ("features", "cameras"):
        (work / f"{name}.json").unlink()
    (work / "features.json").mkdir()
    os.mkfifo(work / "cameras.json")


def empty_files(work):
    for path in work.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[:-200])


def empty(path):
    path.write_bytes(b"")


DATABASES = {
    "garbage": lambda path: path.write_bytes(b"not a database" * 999),
    "empty": empty,
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "foreign": lambda path: sql(path, "UPDATE descriptors SET data = x'00'"),
    "none": Path.unlink,
}
DAMAGE = {
    "garbage database": lambda work: DATABASES["garbage"](work / DATABASE),
    "a link for a picture": picture_that_is_a_link_to_nowhere,
    "no model": lambda work: shutil.rmtree(work / "sparse"),
    "stamps that pass": lambda work: restamped(work, photographs=[{"name": 3}], cameras={"names": 3}),
    "stamps that are no files": stamps_that_are_no_files,
    "empty files": empty_files,
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


@pytest.mark.parametrize(
    ("name", "damage"),
    [("image/002.png", Path.unlink), ("sparse/points.ply", empty), ("overview.png", cut), ("cameras_sphere.npz", cut)],
)
def test_a_scene_that_was_damaged_is_written_again(copied_scene, damage, name):
    before = (copied_scene / "scene" / name).read_bytes()
    damage(copied_scene / "scene" / name)
    said = lines_of(copied_scene)
    assert name == "cameras_sphere.npz" or f"{name}: missing or damaged; the scene is written again" in said
    assert name == "cameras_sphere.npz" or (copied_scene / "scene" / name).read_bytes() == before
    assert read(copied_scene / "scene").n_views == N_VIEWS


def test_what_its_user_changed_is_not_undone(copied_scene):
    retouched = cv2.imencode(".png", np.zeros((240, 320, 3), np.uint8))[1].tobytes()
    picture = copied_scene / "scene" / "image" / "001.png"
    picture.write_bytes(retouched)
    assert not prepare(request(copied_scene), str)
    (copied_scene / "scene" / "overview.png").unlink()
    refuse("overview.png: missing or damaged, and image/001.png: changed since; restore", copied_scene)
    assert picture.read_bytes() == retouched
    assert prepare(request(copied_scene, overwrite=True), str) and read_image(picture).any()


def test_what_an_interrupted_run_left_is_not_trusted_where_nothing_comes_of_it(copied_scene):
    work = copied_scene / "scene" / "prepare"
    (work / "cameras.json").unlink()
    sql(work / DATABASE, "UPDATE two_view_geometries SET rows = 0, data = NULL")  # whole and sound, and wrong
    said = lines_of(copied_scene, overwrite=True)
    assert any("features, matches and cameras are redone" in line for line in said)
    assert read(copied_scene / "scene").n_views == N_VIEWS


HOLD = (
    "import sys, time; from pathlib import Path; from data.prepare.lock import only_one\n"
    "with only_one(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
)


@pytest.mark.cli
def test_a_second_preparation_is_refused_while_the_first_lives(tmp_path):
    write_photographs(tmp_path / "photos", 3)
    work = tmp_path / "scene" / "prepare"
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen([sys.executable, "-c", HOLD, str(work)], cwd=root, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        before = sorted(tmp_path.rglob("*"))
        refuse(rf"another --mode prepare \(process {holder.pid}\) is running in .*scene: wait", tmp_path)
        assert sorted(tmp_path.rglob("*")) == before
        holder.kill()
    assert (work / LOCK_NAME).exists()
    with only_one(work), pytest.raises(UserError, match=f"process {os.getpid()}"), only_one(work):
        pass
    assert list(work.iterdir()) == []


def test_a_disk_that_takes_no_number_keeps_no_lock(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("data.io.lock.os.pwrite", full)
    with pytest.raises(OSError, match="No space"), only_one(tmp_path / "scene" / "prepare"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_or_log_that_is_a_hard_link_is_not_written_through(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / LOCK_NAME).hardlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="a hard link"), only_one(tmp_path):
        pass
    with pytest.raises(OSError, match="a hard link"):
        run_apart(print, log=tmp_path / LOCK_NAME)
    assert (tmp_path / "mine").read_text() == "precious" and (tmp_path / LOCK_NAME).exists()
