"""Unreadable folders, links to themselves and too long names: an error message in every format."""

import ctypes
import os
import shutil
import tempfile
from pathlib import Path

import colmap_files
import pytest
from broken_scenes import WRITERS
from synthetic_scene import dataset_config, write_scene

from data.errors import UserError
from data.prepare.load import load_held_out, load_scene

FORMATS = {
    "neus": lambda folder: write_scene(folder, n_views=3),
    "colmap": lambda folder: colmap_files.write_project(folder, "PINHOLE"),
    **WRITERS,
}
READS_ANYTHING = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, linux/capability.h
CAPABILITY_VERSION = 0x20080522
LONG = "a" * 300
KEYS = ("data_dir", "test_dir", "render_cameras_name", "object_cameras_name")


@pytest.fixture
def scene_folder():
    """A folder that every user may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder / "teapot"
    for place, _, _ in os.walk(folder):
        os.chmod(place, 0o755)
    shutil.rmtree(folder)


def outcome(folder, **settings):
    """ "read", the sentence, or the name of whatever else was raised."""
    conf = dataset_config(Path(folder), **settings)
    try:
        load_held_out(conf, load_scene(conf))
    except UserError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001, any: it is the finding
        return f"TRACEBACK {type(error).__name__}: {error}"
    return "read"


def as_an_ordinary_user(work):
    """What `work()` returns without root's right to read everything."""
    libc, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    effective = sets[0]
    sets[0] &= ~READS_ANYTHING
    libc.capset(header, sets)
    try:
        return work()
    finally:
        sets[0] = effective
        libc.capset(header, sets)


def places(folder):
    """The folder and everything in it, of its pictures the first of each folder."""
    entries = sorted(folder.rglob("*"))
    first = {path.parent: path for path in reversed(entries) if path.suffix == ".png"}
    return [folder, *(path for path in entries if path.suffix != ".png"), *first.values()]


def assert_named(told):
    assert told and not told.startswith("TRACEBACK") and "\n" not in told, told
    assert told == "read" or "teapot" in told, told


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_what_its_user_may_not_read_is_a_sentence(kind, scene_folder):
    FORMATS[kind](scene_folder)
    assert outcome(scene_folder, type=kind) == "read"
    assert as_an_ordinary_user(lambda: outcome(scene_folder, type=kind)) == "read"
    for path in places(scene_folder):
        mode = path.stat().st_mode
        for closed in (0o000, 0o111, 0o444) if path == scene_folder else (0o000,):
            path.chmod(closed)
            for chosen in (kind, "auto") if path.is_dir() else (kind,):
                told = as_an_ordinary_user(lambda chosen=chosen: outcome(scene_folder, type=chosen))
                assert_named(told)
                if path.name in ("images", "train") and chosen == kind:
                    assert path.name in told and "Permission denied" in told and "not there" not in told, told
            path.chmod(mode)


@pytest.mark.parametrize("kind", FORMATS)
def test_links_to_themselves_and_too_long_names_are_sentences(kind, scene_folder):
    FORMATS[kind](scene_folder)
    for key in KEYS[: {"neus": 4, "llff": 2}.get(kind, 1)]:
        for name, chosen in ((LONG, kind), (f"{LONG}/b", "auto"), ("/".join([LONG[:200]] * 30), kind)):
            told = outcome(scene_folder, **{"type": chosen, key: name})
            assert told == "read" or (LONG[:50] in told and not told.startswith("TRACEBACK")), told
    for path in places(scene_folder):
        aside = scene_folder.with_name("b" * 255)  # as long as they may be
        path.rename(aside)
        path.symlink_to(path)
        assert_named(outcome(scene_folder, type=kind if aside.is_file() else "auto"))
        path.unlink()
        aside.rename(path)
