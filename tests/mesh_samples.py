"""Small meshes for tests."""

from __future__ import annotations

import numpy as np
import trimesh

from models.surface.mesh import Surface


def textured_triangle() -> Surface:
    """A triangle whose texture is red to the right of its middle and blue to the left of it."""
    mesh = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]], process=False)
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:, 32:, 0], picture[:, :32, 2] = 200, 200
    normals = np.tile(np.float32([0, 0, 1]), (3, 1))
    return Surface(mesh, normals, uv=np.array([[0.1, 0.1], [0.9, 0.9], [0.1, 0.9]], np.float32), picture=picture)
