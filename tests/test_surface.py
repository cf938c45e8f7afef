"""Grid, marching cubes and export, against analytic solids."""

import numpy as np
import pytest
from dense_extraction import BOX, marching_cubes, sample_grid, sphere
from scipy.spatial.transform import Rotation

from models.mesh.mesh import About, Surface, read_mesh, surface_to_world, write_surface


def sphere_mesh(radius, resolution=40):
    grid = sample_grid(lambda points: sphere(points, (0.0, 0.0, 0.0), radius), *BOX, resolution, 10**6)
    return marching_cubes(grid, 0.0, *BOX)


@pytest.mark.parametrize(("mirror", "seed"), [(1.0, 0), (-1.0, 1)])
def test_any_similarity_maps_all_and_keeps_faces_outwards(mirror, seed):
    rng = np.random.default_rng(seed)
    mesh, scale = sphere_mesh(0.6, 16), rng.uniform(0.1, 200.0)
    before = mesh.vertices.copy()
    normals = before / np.linalg.norm(before, axis=1, keepdims=True)
    colours = rng.integers(0, 256, before.shape, dtype=np.uint8)
    matrix = np.eye(4)
    matrix[:3, :3] = scale * Rotation.random(random_state=seed).as_matrix() @ np.diag([1, 1, mirror])
    matrix[:3, 3] = rng.normal(size=3) * 100
    world = surface_to_world(Surface(mesh, normals, colours), matrix)
    back = np.linalg.solve(matrix, np.c_[world.mesh.vertices, np.ones(len(before))].T).T[:, :3]
    assert np.allclose(back, before, atol=1e-9) and np.array_equal(mesh.vertices, before)
    assert world.mesh.volume == pytest.approx(scale**3 * mesh.volume, rel=1e-6)
    assert np.array_equal(world.rgb, colours)
    np.testing.assert_allclose(world.normals, normals @ matrix[:3, :3].T / scale, atol=1e-9)
    assert surface_to_world(Surface(mesh), matrix).normals is None  # none are made up


@pytest.mark.parametrize("suffix", [".PLY", ".stl"])
def test_a_mesh_survives_the_disk(tmp_path, suffix):
    mesh, path = sphere_mesh(0.5, 12), tmp_path / "new" / f"mesh{suffix}"
    write_surface(Surface(mesh), path, About("unit", "", "z", 0, ""))
    assert np.allclose(read_mesh(path).triangles, mesh.triangles, atol=1e-6)
