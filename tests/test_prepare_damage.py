"""A damaged prepare folder is repaired by the next call; two calls cannot use one folder at the same time."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import rendered_photographs
from preparations import N_VIEWS, read, request

from data.errors import UserError
from data.io.child import run_apart
from data.io.images import read_image
from data.prepare.database import is_sound, read_links
from data.prepare.lock import LOCK_NAME, only_one
from data.prepare.pipeline import prepare
from data.prepare.steps import Steps

pytestmark = pytest.mark.slow  # it prepares photographs

ROOT = Path(__file__).resolve().parents[1]
PICTURES = [f"{number:04d}.png" for number in range(N_VIEWS)]


def garbage_database(work):
    (work / "database" / "matches.db").write_bytes(b"not a database" * 999)


def empty_database(work):
    (work / "database" / "matches.db").write_bytes(b"")


def cut_database(work):
    path = work / "database" / "matches.db"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def foreign_database(work):
    with sqlite3.connect(work / "database" / "matches.db") as opened:
        opened.execute("UPDATE descriptors SET data = x'00'")
    opened.close()


def no_database(work):
    shutil.rmtree(work / "database")


def missing_picture(work):
    (work / "images" / "0001.png").unlink()


def empty_picture(work):
    (work / "images" / "0001.png").write_bytes(b"")


def picture_that_is_a_link_to_nowhere(work):
    (work / "images" / "0001.png").unlink()
    (work / "images" / "0001.png").symlink_to("/nowhere/at/all.png")


def cut_model(work):
    path = work / "sparse" / "0" / "images.bin"
    path.write_bytes(path.read_bytes()[:100])


def no_model(work):
    shutil.rmtree(work / "sparse")


def other_stamps(work):
    for path in work.glob("*.json"):
        value = json.loads(path.read_text())
        path.write_text(json.dumps({**value, "result": 5}))


def stamps_that_pass(work):
    """As a version without checksums would have written them."""
    for name, result in {"photographs": [{"name": 3}], "cameras": {"names": 3}}.items():
        value = json.loads((work / f"{name}.json").read_text())
        (work / f"{name}.json").write_text(json.dumps({"key": value["key"], "result": result}))


def no_stamps(work):
    for name in ("photographs", "features"):
        (work / f"{name}.json").unlink()


def stamps_that_are_no_files(work):
    (work / "features.json").unlink()
    (work / "features.json").mkdir()
    (work / "cameras.json").unlink()
    os.mkfifo(work / "cameras.json")


def empty_files(work):
    for path in work.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


DATABASES = [garbage_database, empty_database, cut_database, foreign_database, no_database]
DAMAGE = [garbage_database, missing_picture, empty_picture, picture_that_is_a_link_to_nowhere, cut_model, no_model]
DAMAGE += [stamps_that_pass, stamps_that_are_no_files, empty_files]


@pytest.mark.parametrize("damage", DATABASES, ids=lambda damage: damage.__name__)
def test_a_damaged_database_is_known_without_colmap(copied_scene, damage):
    database = copied_scene / "scene" / "prepare" / "database" / "matches.db"
    assert is_sound(database) and len(read_links(database, dict.fromkeys(PICTURES, "a"))) == 1
    damage(copied_scene / "scene" / "prepare")
    assert not is_sound(database)


@pytest.mark.parametrize("damage", [other_stamps, no_stamps], ids=lambda damage: damage.__name__)
def test_a_damaged_stamp_counts_as_none(copied_scene, damage):
    damage(copied_scene / "scene" / "prepare")
    steps = Steps(copied_scene / "scene" / "prepare", {"photographs": 0, "features": 0}, str)
    assert not steps.was_run("photographs") and not steps.was_run("features")


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_what_is_damaged_is_done_again(copied_scene, damage):
    damage(copied_scene / "scene" / "prepare")
    assert prepare(request(copied_scene, overwrite=True), str)
    assert read(copied_scene / "scene").n_views == N_VIEWS
    assert not prepare(request(copied_scene), str), "and is whole from then on"


def test_one_damaged_step_does_not_repeat_the_long_ones(copied_scene):
    missing_picture(copied_scene / "scene" / "prepare")
    said = []
    assert prepare(request(copied_scene, overwrite=True), said.append)
    assert "photographs: the result of an earlier run is damaged, missing or not usable; done again" in said
    assert {"features: done before", "matches: done before", "cameras: done before"} < set(said)


def unlink(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("name", "damage"),
    [("overview.png", cut), ("image/002.png", unlink), ("sparse/points.ply", empty), ("cameras_sphere.npz", cut)],
)
def test_a_scene_that_was_damaged_is_written_again(copied_scene, damage, name):
    before = (copied_scene / "scene" / name).read_bytes()
    damage(copied_scene / "scene" / name)
    said = []
    assert prepare(request(copied_scene), said.append)
    assert name == "cameras_sphere.npz" or f"{name}: missing or damaged; the scene is written again" in said
    assert name == "cameras_sphere.npz" or (copied_scene / "scene" / name).read_bytes() == before
    assert read(copied_scene / "scene").n_views == N_VIEWS


def test_what_its_user_changed_is_not_undone(copied_scene):
    retouched = cv2.imencode(".png", np.zeros((240, 320, 3), np.uint8))[1].tobytes()
    (copied_scene / "scene" / "image" / "001.png").write_bytes(retouched)
    assert not prepare(request(copied_scene), str)
    (copied_scene / "scene" / "overview.png").unlink()
    with pytest.raises(UserError, match="overview.png: missing or damaged, and image/001.png: changed since; restore"):
        prepare(request(copied_scene), str)
    assert (copied_scene / "scene" / "image" / "001.png").read_bytes() == retouched
    assert prepare(request(copied_scene, overwrite=True), str)
    assert read_image(copied_scene / "scene" / "image" / "001.png").any()


def test_what_an_interrupted_run_left_is_not_trusted_where_nothing_comes_of_it(copied_scene):
    work = copied_scene / "scene" / "prepare"
    (work / "cameras.json").unlink()
    with sqlite3.connect(work / "database" / "matches.db") as opened:  # whole and sound, and wrong
        opened.execute("UPDATE two_view_geometries SET rows = 0, data = NULL")
    opened.close()
    said = []
    assert prepare(request(copied_scene, overwrite=True), said.append)
    assert any("features, matches and cameras are redone" in line for line in said)
    assert read(copied_scene / "scene").n_views == N_VIEWS


# two at once

HOLD = (
    "import sys, time; from pathlib import Path; from data.prepare.lock import only_one\n"
    "with only_one(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
)


@pytest.fixture
def holder(tmp_path):
    program = [sys.executable, "-c", HOLD, str(tmp_path / "scene" / "prepare")]
    process = subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.cli
def test_a_second_preparation_is_refused_and_told_who_is_at_work(holder, tmp_path):
    rendered_photographs.write_photographs(tmp_path / "photos", 3)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        UserError, match=rf"another --mode prepare \(process {holder.pid}\) is running in .*scene: wait"
    ):
        prepare(request(tmp_path), str)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.cli
def test_a_dead_process_holds_nothing_and_the_lock_leaves_nothing(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "scene" / "prepare" / LOCK_NAME).exists()
    work = tmp_path / "scene" / "prepare"
    with only_one(work), pytest.raises(UserError, match=f"process {os.getpid()}"), only_one(work):
        pass
    assert list((tmp_path / "scene" / "prepare").iterdir()) == []


def test_a_lock_that_is_a_hard_link_is_not_written_through(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / LOCK_NAME).hardlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="a hard link"), only_one(tmp_path):
        pass
    assert (tmp_path / "mine").read_text() == "precious" and (tmp_path / LOCK_NAME).exists()


def test_a_disk_that_takes_no_number_keeps_no_lock(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("data.io.lock.os.pwrite", full)
    with pytest.raises(OSError, match="No space"), only_one(tmp_path / "scene" / "prepare"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_childs_log_that_is_a_hard_link_is_not_written_through(tmp_path):
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "log").hardlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="a hard link"):
        run_apart(print, log=tmp_path / "log")
    assert (tmp_path / "mine").read_text() == "precious"
