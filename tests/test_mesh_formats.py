"""Meshes on the disk: what other programs read back, what files say of themselves; the flags of a mesh."""

import base64
import importlib.util
import json
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import browsing
import numpy as np
import pytest
import trimesh
from scipy.spatial import cKDTree
from trimesh.viewer.notebook import scene_to_html

from data.errors import UserError
from models.commands.arguments import parse_arguments
from models.commands.model_modes import mesh_request
from models.mesh.mesh import About, Surface, write_surface
from models.mesh.output import companions
from models.requests import MeshRequest
from models.results.meshes import box

ABOUT = About("world", "those of the cameras' file", "not known", 300, "confs/wmask.conf")
MESH = trimesh.creation.icosphere(3, 0.7)
RGB = np.random.default_rng(0).integers(0, 256, (len(MESH.vertices), 3)).astype(np.uint8)
NORMALS = MESH.vertex_normals.astype(np.float32)
UV = np.random.default_rng(1).uniform(0, 1, (len(MESH.vertices), 2)).astype(np.float32)
PICTURE = np.random.default_rng(2).integers(0, 256, (16, 16, 3)).astype(np.uint8)
COLORED = Surface(MESH, NORMALS, RGB)
TEXTURED = Surface(MESH, NORMALS, None, UV, PICTURE)


def written(tmp_path, surface, suffix):
    path = tmp_path / f"mesh{suffix}"
    write_surface(surface, path, ABOUT)
    return path, trimesh.load(path, force="mesh", process=False)


def test_ply_has_vertices_normals_colours_and_says_where_it_is_from(tmp_path):
    path, back = written(tmp_path, COLORED, ".ply")
    assert np.allclose(back.vertices, MESH.vertices, atol=1e-6) and np.array_equal(back.faces, MESH.faces)
    assert np.array_equal(back.visual.vertex_colors[:, :3], RGB)
    assert np.allclose(back.vertex_normals, NORMALS, atol=1e-5)
    head = path.read_bytes()[:400]
    for words in (b"comment frame: world", b"comment units: those", b"comment step: 300", b"comment conf: confs/wmask"):
        assert words in head


@pytest.mark.parametrize("surface", [Surface(MESH), COLORED, TEXTURED], ids=["bare", "colours", "texture"])
def test_obj_is_read_back(tmp_path, surface):
    path, back = written(tmp_path, surface, ".obj")
    assert len(back.vertices) == len(MESH.vertices)  # in any order
    assert cKDTree(back.vertices).query(MESH.vertices)[0].max() < 1e-6
    assert back.volume == pytest.approx(MESH.volume, rel=1e-5)
    assert "# step: 300" in path.read_text() and "# frame: world" in path.read_text()
    if surface is TEXTURED:
        assert companions(path, "texture") == [tmp_path / "mesh.mtl", tmp_path / "mesh.png"]
        assert sorted(tmp_path.iterdir()) == [tmp_path / "mesh.mtl", path, tmp_path / "mesh.png"]
        assert np.array_equal(np.asarray(back.visual.material.image.convert("RGB")), PICTURE)
        assert back.visual.uv.shape[1] == 2


def linear(rgb):
    """8-bit sRGB in the linear light of glTF, 0 to 255."""
    share = rgb / 255
    return 255 * np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def test_glb_has_colours_in_linear_light_unit_normals_and_extras(tmp_path):
    normals = np.where(np.arange(len(NORMALS))[:, None] < 5, 0, NORMALS)  # none at some vertices
    path, back = written(tmp_path, replace(COLORED, normals=normals), ".glb")
    assert np.allclose(back.vertices, MESH.vertices, atol=1e-6) and np.array_equal(back.faces, MESH.faces)
    tree, stored = glb(path, "COLOR_0", "u1")
    assert np.abs(stored[:, :3] - linear(RGB)).max() <= 0.5 and (stored[:, 3] == 255).all()
    assert np.allclose(np.linalg.norm(glb(path, "NORMAL", "<f4")[1], axis=1), 1.0, atol=1e-5)
    assert tree["asset"]["extras"] == vars(ABOUT) and tree["materials"][0]["extensions"] == {"KHR_materials_unlit": {}}
    primitive = tree["meshes"][0]["primitives"][0]
    assert set(primitive["attributes"]) == {"POSITION", "NORMAL", "COLOR_0"} and primitive["material"] == 0
    kinds = {"POSITION": (5126, "VEC3", "<f4"), "NORMAL": (5126, "VEC3", "<f4"), "COLOR_0": (5121, "VEC4", "u1")}
    for name, (kind, shape, dtype) in kinds.items():
        accessor, values = tree["accessors"][primitive["attributes"][name]], glb(path, name, dtype)[1]
        assert (accessor["componentType"], accessor["type"], accessor["count"]) == (kind, shape, len(MESH.vertices))
        assert accessor.get("normalized", False) == (name == "COLOR_0")
        assert tree["bufferViews"][accessor["bufferView"]]["target"] == 34962
        assert np.allclose(accessor["min"], values.min(axis=0)) and np.allclose(accessor["max"], values.max(axis=0))


def test_trimesh_reads_and_writes_the_colours_of_a_glb(tmp_path):
    path = written(tmp_path, COLORED, ".glb")[0]
    plain = trimesh.load(path, skip_materials=True).to_geometry()  # else it has the material's colour, if it has one
    assert np.abs(plain.visual.vertex_colors[:, :3] - linear(RGB)).max() <= 1
    (loaded,) = trimesh.load(path).geometry.values()
    kept = loaded.visual.vertex_attributes["color"]  # beside a material
    assert np.array_equal(kept, glb(path, "COLOR_0", "u1")[1])
    trimesh.load(path).export(tmp_path / "again.glb")  # as its `show` does in a notebook
    assert np.array_equal(glb(tmp_path / "again.glb", "COLOR_0", "u1")[1], glb(path, "COLOR_0", "u1")[1])


@pytest.mark.browser
def test_three_js_shows_the_colours_of_a_glb(tmp_path):
    """By the library in trimesh's page, whose own output is not sRGB."""
    color = np.array([200, 120, 60], np.uint8)
    path = written(tmp_path, Surface(MESH, NORMALS, np.tile(color, (len(MESH.vertices), 1))), ".glb")[0]
    page = scene_to_html(trimesh.Scene(MESH))
    head, mark, rest = page.partition('base64_data="')
    page = head + mark + base64.b64encode(path.read_bytes()).decode() + rest[rest.index('"') :]
    camera = "new THREE.PerspectiveCamera(45, 1, 0.01, 100); camera.position.set(0, 0.8, 2.5)"
    page = page.replace("camera=gltf.cameras[0]", f"camera={camera}")
    page = page.replace(
        "renderer.setPixelRatio", "renderer.outputEncoding=THREE.sRGBEncoding;renderer.setPixelRatio", 1
    )
    (tmp_path / "page.html").write_text(page)
    with browsing.opened((tmp_path / "page.html").as_uri(), (200, 200)) as (opened, errors):

        def is_shown():
            return np.abs(browsing.picture_of(opened, "canvas", tmp_path)[100, 100] - color).max() <= 2

        assert browsing.wait_until(opened, is_shown, 60) and errors == []


def glb(path, name, dtype):
    """The JSON part of a file, and an attribute of its vertices."""
    content = path.read_bytes()
    magic, version, length, size = struct.unpack_from("<4sIII", content)
    assert (magic, version, length) == (b"glTF", 2, len(content)) and length % 4 == 0
    tree = json.loads(content[20 : 20 + size])
    accessor = tree["accessors"][tree["meshes"][0]["primitives"][0]["attributes"][name]]
    start, columns = tree["bufferViews"][accessor["bufferView"]]["byteOffset"], int(accessor["type"][-1])
    return tree, np.frombuffer(content[28 + size :], dtype, accessor["count"] * columns, start).reshape(-1, columns)


# flags


def requested(*flags):
    return mesh_request(parse_arguments(["--mode", "validate_mesh", *flags]).values)


def test_what_is_asked_for_reaches_the_request():
    line = "--bbox -1 -2 -3 4 5 6.5 --frame unit --decimate 500 --colour texture --texture_size 512 --output a/b.OBJ"
    found = requested(*line.split())
    assert found.bbox == (-1, -2, -3, 4, 5, 6.5) and (found.frame, found.decimate) == ("unit", 500)
    assert (found.color, found.texture_size, found.output) == ("texture", 512, Path("a/b.OBJ"))
    printed = requested("--simplify", "0.5", "--watertight")
    assert (printed.simplify, printed.is_watertight, found.simplify, found.is_watertight) == (0.5, True, None, False)
    assert requested("--output", "a.stl").color == "none" and requested("--colour", "texture").output is None


REFUSED = {
    "--bbox 0 0 0 1 0 1": "--bbox 0 0 0 1 0 1: each of the first three",
    "--output a.stl --colour vertex": "cannot hold --colour vertex",
    "--output a.jpg": "must end in one of",
    "--simplify 0": "must be greater than 0",
    "--simplify 1 --decimate 9": "--decimate, --simplify: one gives",
    "--output b.ply": "is a folder",
    f"--output {'n' * 240}.ply": "longer than 235 bytes",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_what_cannot_be_is_refused(flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("b.ply").mkdir()
    with pytest.raises(UserError, match=REFUSED[flags]):
        requested(*flags.split())


def test_a_missing_package_is_named_with_the_flag_that_needs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for package, flag, value in (("xatlas", "--colour", "texture"), ("fast_simplification", "--decimate", "9")):
        with pytest.raises(UserError, match=f"{flag}.*the Python package {package} is missing; run `pip install"):
            requested(flag, value)


def test_a_picture_that_is_no_texture_of_the_mesh_is_not_replaced(tmp_path):
    textured = ["--output", str(tmp_path / "jug.obj"), "--colour", "texture"]
    requested(*textured)
    (tmp_path / "jug.png").write_bytes(b"a photograph")
    with pytest.raises(UserError, match="jug.png exists and would be replaced"):
        requested(*textured)
    requested("--output", str(tmp_path / "jug.obj"))  # without a texture nothing else is written
    (tmp_path / "jug.obj").touch()  # an earlier mesh with its texture
    requested(*textured)


def test_a_box_without_room_or_beyond_all_scenes_is_refused():
    scene = SimpleNamespace(bbox_min=np.full(3, -1.01), bbox_max=np.full(3, 1.01), scene_to_world=0.1 * np.eye(4))
    for size, frame in ((1e-5, "unit"), (1e-300, "world"), (1e30, "world")):
        with pytest.raises(UserError, match="--bbox .* radii of the region of interest"):
            box(scene, MeshRequest(8, bbox=(-size,) * 3 + (size,) * 3, frame=frame))


@pytest.mark.parametrize(("stem", "inner"), [("my jug", "my_jug"), ("-jug#2", "_jug_2")])
def test_names_inside_an_obj_are_words(tmp_path, stem, inner):
    path = tmp_path / f"{stem}.obj"
    files = write_surface(TEXTURED, path, ABOUT)
    assert files == [path, tmp_path / f"{inner}.mtl", tmp_path / f"{inner}.png"] and all(map(Path.is_file, files))
    assert f"mtllib {inner}.mtl\n" in path.read_text() and f"map_Kd {inner}.png\n" in files[1].read_text()
