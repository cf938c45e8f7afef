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


def link_to_nowhere(path):
    path.unlink()
    path.symlink_to("/nowhere/at/all.png")


DATABASES = {
    "garbage": lambda path: path.write_bytes(b"not a database" * 999),
    "empty": empty,
    "cut": cut,
    "foreign": lambda path: sql(path, "UPDATE descriptors SET data = x'00'"),
    "none": Path.unlink,
}
DAMAGE = {
    "garbage database": lambda work: DATABASES["garbage"](work / DATABASE),
    "a link for a picture": lambda work: link_to_nowhere(work / "images" / "0001.png"),
    "no model": lambda work: shutil.rmtree(work / "sparse"),
    "stamps that pass": lambda work: restamped(work, photographs=[{"name": 3}], cameras={"names": 3}),
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


@pytest.mark.parametrize(
    ("name", "damage"),
    [("image/002.png", Path.unlink), ("sparse/points.ply", empty), ("overview.png", cut)]
    + [("cameras_sphere.npz", cut), ("cameras_sphere.npz", Path.unlink)],
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


def test_what_an_interrupted_run_left_is_not_trusted_if_it_gives_nothing(copied_scene):
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
