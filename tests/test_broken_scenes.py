"""Any content of a camera file is read, or reported in one sentence."""

import json

import numpy as np
import pytest
from broken_scenes import ALIKE, CAMERAS, DEEP, LENSES, READERS, WRITERS
from scene_writers import write_blender, write_nerfstudio, write_ngp
from synthetic_scene import dataset_config

from data.errors import UserError
from data.scenes.load import parse_scene


@pytest.mark.parametrize("content", [b"", b"{", b"[]", DEEP, b"\xff\xfe"])
def test_a_broken_camera_file_is_named_where_the_format_is_to_be_recognised(tmp_path, content):
    (tmp_path / "transforms.json").write_bytes(content)
    with pytest.raises(UserError, match="transforms.json"):
        parse_scene(dataset_config(tmp_path))


JUNK = [None, True, -1, 0, 1e308, 10**400, "x", "", "a\nb", [], {}, [[]], [{}], float("nan"), float("inf"), [1] * 6]


def places(content, path=()):
    """The path of every value in what JSON holds: keys and indices."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def replaced(content, path, value):
    copy = json.loads(json.dumps(content))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
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
