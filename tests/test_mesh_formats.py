"""Meshes on the disk: what another program reads back, what the file says of itself, what a format cannot hold."""

import json
import struct

import numpy as np
import pytest
import trimesh
from scipy.spatial import cKDTree

from data.errors import UserError
from models.surface.formats import companions, require_format, write_surface
from models.surface.mesh import About, Surface

ABOUT = About("world", "those of the cameras' file", 300, "confs/wmask.conf")
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
    if surface is not TEXTURED:
        assert np.allclose(back.vertices, MESH.vertices, atol=1e-6)
    assert len(back.vertices) == len(MESH.vertices)  # in any order
    assert cKDTree(back.vertices).query(MESH.vertices)[0].max() < 1e-6
    assert back.volume == pytest.approx(MESH.volume, rel=1e-5)
    assert "# step: 300" in path.read_text() and "# frame: world" in path.read_text()


def test_textured_obj_has_its_material_and_picture_beside_it(tmp_path):
    path, back = written(tmp_path, TEXTURED, ".obj")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["mesh.mtl", "mesh.obj", "mesh.png"]
    assert companions(path, "texture") == [tmp_path / "mesh.mtl", tmp_path / "mesh.png"]
    assert np.array_equal(np.asarray(back.visual.material.image.convert("RGB")), PICTURE)
    assert back.visual.uv.shape[1] == 2


def test_glb_opens_with_colours_in_linear_light_and_extras(tmp_path):
    path, back = written(tmp_path, COLORED, ".glb")
    assert np.allclose(back.vertices, MESH.vertices, atol=1e-6) and np.array_equal(back.faces, MESH.faces)
    light = np.where(RGB / 255 <= 0.04045, RGB / 255 / 12.92, ((RGB / 255 + 0.055) / 1.055) ** 2.4)
    tree, binary = glb(path)
    accessor = tree["accessors"][tree["meshes"][0]["primitives"][0]["attributes"]["COLOR_0"]]
    view = tree["bufferViews"][accessor["bufferView"]]
    stored = np.frombuffer(binary, "<u2", accessor["count"] * 4, view["byteOffset"]).reshape(-1, 4)
    assert np.allclose(stored[:, :3] / 65535, light, atol=1e-4) and (stored[:, 3] == 65535).all()
    assert tree["asset"]["extras"] == vars(ABOUT) and tree["materials"][0]["extensions"] == {"KHR_materials_unlit": {}}


def glb(path):
    content = path.read_bytes()
    magic, version, length = struct.unpack_from("<4sII", content)
    assert (magic, version, length) == (b"glTF", 2, len(content)) and length % 4 == 0
    size = struct.unpack_from("<I", content, 12)[0]
    return json.loads(content[20 : 20 + size]), content[28 + size :]


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("a.stl", "vertex", r"\.stl cannot hold --colour vertex; write \.ply or \.obj or \.glb, or --colour none"),
        ("a.stl", "texture", r"\.stl cannot hold --colour texture; write \.obj or \.glb"),
        ("a.ply", "texture", r"\.ply cannot hold --colour texture"),
        ("a.png", None, r"a\.png: a mesh file must end in one of \.ply, \.obj, \.glb, \.stl"),
        ("a", "none", "must end in one of"),
    ],
)
def test_format_that_cannot_hold_it_is_said(tmp_path, name, asked, words):
    with pytest.raises(UserError, match=words):
        require_format(tmp_path / name, asked)


def test_mesh_without_normals_somewhere_is_written_with_unit_ones(tmp_path):
    normals = NORMALS.copy()
    normals[:5] = 0.0
    written(tmp_path, Surface(MESH, normals, RGB), ".glb")
    tree, binary = glb(tmp_path / "mesh.glb")
    accessor = tree["accessors"][tree["meshes"][0]["primitives"][0]["attributes"]["NORMAL"]]
    offset = tree["bufferViews"][accessor["bufferView"]]["byteOffset"]
    stored = np.frombuffer(binary, "<f4", accessor["count"] * 3, offset).reshape(-1, 3)
    assert np.allclose(np.linalg.norm(stored, axis=1), 1.0, atol=1e-5)


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path, _ = written(tmp_path, COLORED, ".glb")
    old = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UserError, match="mesh.glb.*No space left"):
        write_surface(TEXTURED, path, ABOUT)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]
