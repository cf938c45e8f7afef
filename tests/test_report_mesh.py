"""The mesh of a page: decimated with its colours, or whole with its texture."""

import base64
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from mesh_samples import textured_triangle

from data.errors import UserError
from models.report import parts
from models.surface.mesh import Surface


def test_a_textured_mesh_keeps_its_texture():
    surface = textured_triangle()
    part = parts.mesh_part(surface)
    assert part["picture"].startswith("data:image/webp") and "colors" not in part
    assert np.frombuffer(base64.b64decode(part["uv"]), "<f4").reshape(-1, 2).tolist() == surface.uv.tolist()
    assert np.frombuffer(base64.b64decode(part["normals"]), np.int8).reshape(-1, 3).tolist() == 3 * [[0, 0, 127]]
    assert "normals" not in parts.mesh_part(replace(surface, normals=None))


def test_a_texture_gives_the_colours_of_a_decimated_mesh(monkeypatch):
    monkeypatch.setattr(parts, "TEXTURED_FACES", 0)
    mesh = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]], process=False)
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[1, 0], picture[0, 1] = 10, 20  # lower left, upper right
    surface = Surface(mesh, uv=np.array([[0.1, 0.1], [0.9, 0.9], [1.0, 1.0]], np.float32), picture=picture)
    colors = np.frombuffer(base64.b64decode(parts.mesh_part(surface)["colors"]), np.uint8).reshape(-1, 3)
    assert colors[:, 0].tolist() == [10, 20, 20]


def test_a_mesh_is_thinned_out_with_its_colours_and_one_too_large_is_told(monkeypatch):
    mesh = trimesh.creation.icosphere(5)
    surface = Surface(mesh, None, np.rint((mesh.vertices + 1) * 127.5).astype(np.uint8))
    part = parts.mesh_part(surface, 2000)
    assert part["whole"] == len(mesh.faces) and 1500 < part["triangles"] <= 2100 and part["colors"]
    monkeypatch.setattr("models.surface.clean.MOST_FACES", 1000)
    with pytest.raises(UserError, match="20480 triangles, more than the 1000 that can be decimated for a page: lower"):
        parts.mesh_part(surface)
