"""Broken scenes of every format: any content of a camera file is read, or reported in one sentence."""

import json
from functools import reduce
from operator import getitem

import numpy as np
import pytest
from broken_scenes import ALIKE, BROKEN, CAMERAS, LENSES, READERS, WRITERS
from runs import ROOT
from scene_writers import make_views, write_blender, write_nerfstudio, write_ngp

import exp_runner
from data.errors import UserError

JUNK = [None, True, -1, 0, 1e308, 10**400, "x", "", "a\nb", [], {}, [[]], [{}], float("nan"), float("inf"), [1] * 6]


def places(content, path=()):
    """The path of every value in what JSON holds: keys and indices."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def replaced(content, path, value):
    copy = json.loads(json.dumps(content))
    reduce(getitem, path[:-1], copy)[path[-1]] = value
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blender", "ngp", "nerfstudio"])
def test_whatever_stands_anywhere_in_a_camera_file_is_read_or_named(tmp_path, kind):
    views = ALIKE[:2] if kind == "blender" else LENSES[:2]
    options = {"n_held_out": 0} if kind == "blender" else {}
    {"blender": write_blender, "ngp": write_ngp, "nerfstudio": write_nerfstudio}[kind](tmp_path, views, **options)
    path = tmp_path / CAMERAS[kind]
    content = json.loads(path.read_text())
    if kind == "nerfstudio":
        content |= {"train_filenames": ["images/view_0.png"], "test_filenames": ["images/view_1.png"]}
    for place in places(content):
        for junk in JUNK:
            path.write_text(json.dumps(replaced(content, place, junk)))
            try:
                READERS[kind](tmp_path, None)
            except UserError as error:
                assert "\n" not in str(error) and len(str(error)) < 500


@pytest.mark.parametrize(("kind", "name"), [("llff", "poses_bounds.npy"), ("nerfstudio", "sparse_pc.ply")])
def test_damaged_bytes_are_read_or_named(tmp_path, kind, name):
    WRITERS[kind](tmp_path)
    whole = np.frombuffer((tmp_path / name).read_bytes(), np.uint8)
    rng = np.random.default_rng(3)
    for _ in range(150):
        damaged = whole.copy()
        at = rng.integers(min(len(whole), 260), size=3)  # mostly the header
        damaged[at] = rng.integers(256, size=3)
        (tmp_path / name).write_bytes(damaged.tobytes()[: rng.integers(len(whole) // 2, len(whole) + 1)])
        try:
            READERS[kind](tmp_path, None)
        except UserError as error:
            assert "\n" not in str(error) and name in str(error)


# the command line: one sentence, exit status 2, nothing written


def listing(folder):
    return sorted((str(path.relative_to(folder)), path.is_dir() or path.stat().st_size) for path in folder.rglob("*"))


def assert_refused(folder, words, capfd, *settings):
    """Start a training on the scene; all these end before Jittor is loaded."""
    before = listing(folder.parent)
    paths = (f"dataset.data_dir={folder}", f"general.base_exp_dir={folder.parent / 'exp'}", "dataset.test_dir=")
    flags = [flag for setting in (*paths, "train.mask_weight=0", *settings) for flag in ("--set", setting)]
    assert exp_runner.main(["--conf", str(ROOT / "confs/debug.conf"), *flags]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("error: ") and err.endswith("\n") and err[:-1].isprintable()
    assert [word for word in words if word not in err] == [], err
    assert listing(folder.parent) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_scene_stops_the_command_line(name, tmp_path, capfd):
    kind, break_it, words = BROKEN[name]
    WRITERS[kind](tmp_path / "teapot")
    READERS[kind](tmp_path / "teapot", None)  # it is whole before
    break_it(tmp_path / "teapot" / CAMERAS[kind])
    assert_refused(tmp_path / "teapot", ["teapot", *words], capfd, f"dataset.type={kind}")
    assert_refused(tmp_path / "teapot", [], capfd)  # recognised, where it still can be


CANNOT_TRAIN = [
    ("dataset.roi=90 90 90 1", ["look away", "--roi"]),
    ("dataset.type=obj", ["dataset.type = 'obj'", "one of"]),
    ("dataset.test_every=1", ["no photograph is left"]),
    ("dataset.test_views=[9]", ["there is no photograph 9"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "words"), CANNOT_TRAIN)
def test_what_cannot_be_trained_on_stops_the_command_line(setting, words, tmp_path, capfd):
    write_ngp(tmp_path / "teapot", make_views())
    assert_refused(tmp_path / "teapot", words, capfd, setting)
