"""The flags of a mesh: what they ask for, and what is refused before anything is loaded."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from data.errors import UserError
from models.commands.arguments import parse_arguments
from models.commands.mesh_flags import full_request
from models.requests import MeshRequest
from models.results.meshes import box


def requested(*flags):
    return full_request(parse_arguments(["--mode", "validate_mesh", *flags]).values)


def test_what_is_asked_for_reaches_the_request():
    found = requested(
        "--bbox", "-1", "-2", "-3", "4", "5", "6.5", "--frame", "unit", "--decimate", "500", "--colour", "texture",
        "--texture_size", "512", "--output", "a/b.OBJ",
    )  # fmt: skip
    assert found.bbox == (-1, -2, -3, 4, 5, 6.5) and (found.frame, found.decimate) == ("unit", 500)
    assert (found.color, found.texture_size, found.output) == ("texture", 512, Path("a/b.OBJ"))
    printed = requested("--simplify", "0.5", "--watertight")
    assert (printed.simplify, printed.is_watertight, found.simplify, found.is_watertight) == (0.5, True, None, False)
    assert requested("--output", "a.stl").color == "none" and requested("--colour", "texture").output is None


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--bbox 0 0 0 1 0 1", "--bbox 0 0 0 1 0 1: each of the first three"),
        ("--bbox 0 0 nan 1 1 1", "finite"),
        ("--output a.stl --colour vertex", "cannot hold --colour vertex"),
        ("--output a.ply --colour texture", "cannot hold --colour texture"),
        ("--output a.jpg", "must end in one of"),
        ("--decimate 3", "not a whole number in 4"),
        ("--simplify 0", "is not above 0"),
        ("--simplify 1 --decimate 9", "--decimate, --simplify: one gives"),
        ("--texture_size 100000", "16384"),
        ("--frame camera", "--frame"),
        ("--resolution 4096", "2..2048"),
        ("--output file/b.ply", "file is not writable"),
        ("--output b.ply", "is a folder"),
        (f"--output {'n' * 240}.ply", "longer than 235 bytes"),
    ],
)
def test_what_cannot_be_is_refused(flags, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("b.ply").mkdir()
    with pytest.raises(UserError, match=words):
        requested(*flags.split())


@pytest.mark.parametrize(
    ("package", "flags"), [("xatlas", ["--colour", "texture"]), ("fast_simplification", ["--decimate", "9"])]
)
def test_missing_package_is_named_with_the_flag_that_needs_it(package, flags, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    requested()
    with pytest.raises(UserError, match=f"{flags[0]}.*the Python package {package} is missing; run `pip install"):
        requested(*flags)


def test_a_picture_that_is_no_texture_of_the_mesh_is_not_replaced(tmp_path):
    textured = ["--output", str(tmp_path / "jug.obj"), "--colour", "texture"]
    requested(*textured)
    (tmp_path / "jug.png").write_bytes(b"a photograph")
    with pytest.raises(UserError, match="jug.png exists and would be replaced"):
        requested(*textured)
    requested("--output", str(tmp_path / "jug.obj"))  # without a texture nothing else is written
    (tmp_path / "jug.obj").touch()  # an earlier mesh with its texture
    requested(*textured)
    (tmp_path / "jug.mtl").mkdir()
    with pytest.raises(UserError, match="jug.mtl: is a folder"):
        requested(*textured)


def test_a_protected_file_is_told_before_the_work(tmp_path, monkeypatch):
    assert requested("--output", str(tmp_path / f"new/{'n' * 231}.ply")).output.suffix == ".ply"
    mesh = tmp_path / "mesh.ply"
    mesh.touch(0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != mesh)  # the superuser may write to all
    with pytest.raises(UserError, match="is read-only"):
        requested("--output", str(mesh))


@pytest.mark.parametrize("size", [1e-300, 1e-5, 1e30])
def test_a_box_without_room_or_beyond_all_scenes_is_refused(size):
    scene = SimpleNamespace(bbox_min=np.full(3, -1.01), bbox_max=np.full(3, 1.01), scene_to_world=0.1 * np.eye(4))
    for frame in ("unit", "world"):
        with pytest.raises(UserError, match="--bbox .* radii of the region of interest"):
            box(scene, MeshRequest(8, bbox=(-size,) * 3 + (size,) * 3, frame=frame))
