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
from data.scenes.load import load_held_out, load_scene

PR_CAPBSET_DROP = 24  # linux/prctl.h
READS_ANYTHING = (1, 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, linux/capability.h
CAPABILITY_VERSION = 0x20080522
FORMATS = {
    "neus": lambda folder: write_scene(folder, n_views=3),
    "colmap": lambda folder: colmap_files.write_project(folder, "PINHOLE"),
    **WRITERS,
}
LONG = "a" * 300


@pytest.fixture
def scene_folder():
    """A folder that every user may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder / "teapot"
    for place, _, _ in os.walk(folder):
        os.chmod(place, 0o755)
    shutil.rmtree(folder)


def give_up_reading_anything():
    """From here on permissions hold for this process and its children, even where they are root's."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in READS_ANYTHING:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    kept = ~sum(1 << capability for capability in READS_ANYTHING)
    sets[0], sets[1], sets[2] = sets[0] & kept, sets[1] & kept, sets[2] & kept
    libc.capset(header, sets)


def as_an_ordinary_user(work):
    """What `work()` returns, in a child without root's right to read everything."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            give_up_reading_anything()
            os.write(writer, work().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        told = answer.read().decode()
    os.waitpid(child, 0)
    return told


def outcome(folder, **settings):
    """ "read", the sentence, or the name of whatever else was raised."""
    conf = dataset_config(Path(folder), **settings)
    try:
        scene = load_scene(conf)
        load_held_out(conf, scene)
    except UserError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001, any: it is the finding
        return f"TRACEBACK {type(error).__name__}: {error}"
    return "read"


def places(folder):
    """The folder and everything in it, of its pictures the first of each folder."""
    entries = sorted(folder.rglob("*"))
    pictures = [path for path in entries if path.suffix == ".png"]
    first = [path for path in pictures if path == min(other for other in pictures if other.parent == path.parent)]
    return [folder, *(path for path in entries if path not in pictures), *first]


def assert_named(told):
    assert told and not told.startswith("TRACEBACK") and "\n" not in told, told
    assert told == "read" or "teapot" in told, told


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_what_its_user_may_not_read_is_a_sentence(kind, scene_folder):
    FORMATS[kind](scene_folder)
    assert as_an_ordinary_user(lambda: outcome(scene_folder, type=kind)) == "read"
    for path in places(scene_folder):
        mode, types = path.stat().st_mode, (kind, "auto") if path.is_dir() else (kind,)
        for closed in (0o000, 0o100, 0o400) if path == scene_folder else (0o000,):
            path.chmod(closed)
            told = [as_an_ordinary_user(lambda chosen=chosen: outcome(scene_folder, type=chosen)) for chosen in types]
            path.chmod(mode)
            for sentence in told:
                assert_named(sentence)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_link_to_itself_is_a_sentence(kind, scene_folder):
    FORMATS[kind](scene_folder)
    for path in places(scene_folder):
        aside = scene_folder.with_name("aside")
        path.rename(aside)
        path.symlink_to(path)
        assert_named(outcome(scene_folder, type=kind if aside.is_file() else "auto"))
        path.unlink()
        aside.rename(path)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *((kind, "data_dir") for kind in FORMATS),
        *((kind, "test_dir") for kind in ("neus", "llff")),
        *(("neus", key) for key in ("render_cameras_name", "object_cameras_name")),
    ],
)
def test_a_name_beyond_any_file_system_is_a_sentence(kind, key, scene_folder):
    FORMATS[kind](scene_folder)
    for name in (LONG, f"{LONG}/b", "/".join([LONG[:200]] * 30)):
        for chosen in (kind, "auto"):
            told = outcome(scene_folder, **{"type": chosen, key: name})
            if told != "read":
                assert LONG[:50] in told
            assert not told.startswith("TRACEBACK"), told


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_with_a_name_as_long_as_they_may_be_is_read(kind, scene_folder):
    folder = scene_folder.with_name("b" * 255)
    FORMATS[kind](folder)
    assert outcome(folder, type=kind) == "read"


@pytest.mark.parametrize("kind", ["ngp", "nerfstudio", "blender", "colmap"])
def test_a_folder_that_may_not_be_entered_is_not_called_empty(kind, scene_folder):
    FORMATS[kind](scene_folder)
    pictures = scene_folder / ("train" if kind == "blender" else "images")
    pictures.chmod(0o000)
    told = as_an_ordinary_user(lambda: outcome(scene_folder, type=kind))
    assert pictures.name in told and "Permission denied" in told and "not there" not in told, told


@pytest.mark.slow
def test_a_photograph_with_the_longest_name_has_the_mask_of_its_own_name(scene_folder):
    """COLMAP's name for it, with .png behind, is longer than a file system takes."""
    names = [f"{letter * 251}.png" for letter in "abc"]
    colmap_files.write_project(scene_folder, "txt", names=["1.png", "2.png", "3.png"])
    model = scene_folder / "sparse/0/images.txt"
    for short, name in zip(("1.png", "2.png", "3.png"), names, strict=True):
        model.write_text(model.read_text().replace(f" {short}\n", f" {name}\n"))
        (scene_folder / "images" / short).rename(scene_folder / "images" / name)
    shutil.copytree(scene_folder / "images", scene_folder / "masks")
    assert "all masks are empty" in outcome(scene_folder, type="colmap")  # they were read
    (scene_folder / "masks" / names[0]).unlink()
    assert "1 of 3 photographs have no mask" in outcome(scene_folder, type="colmap")
