"""Grid, marching cubes and export, against analytic solids."""

import os

import dense_extraction as extraction
import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from data.errors import UserError
from models.evaluation import mesh_distance as metrics
from models.surface import export
from models.surface.formats import write_surface
from models.surface.mesh import About, Surface

BOX = (np.array([-1.0, -1.0, -1.0]), np.array([1.0, 1.0, 1.0]))


def sphere_sdf(radius, center=(0.0, 0.0, 0.0)):
    return lambda points: np.linalg.norm(points - np.float32(center), axis=-1) - np.float32(radius)


def lopsided(points):
    return points[:, 0] + 10.0 * points[:, 1] ** 2 - 3.0 * points[:, 2]


def sphere_mesh(radius, resolution=40, threshold=0.0):
    grid = extraction.sample_grid(sphere_sdf(radius), *BOX, resolution, 10**6)
    return extraction.marching_cubes(grid, threshold, *BOX)


def plate(height=1.0):
    return trimesh.creation.box((1.0, 1.0, height))


# the grid


def test_grid_holds_the_function_at_evenly_spaced_points_corners_included_in_x_y_z_order():
    low, high, n = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 5.0]), 5
    grid = extraction.sample_grid(lopsided, low, high, n, 7)
    assert grid.shape == (n, n, n) and grid.dtype == np.float32
    for i, j, k in np.ndindex(n, n, n):
        point = low + (high - low) * np.array([i, j, k]) / (n - 1)
        assert grid[i, j, k] == pytest.approx(lopsided(point[None])[0], abs=1e-5)


def test_function_sees_each_grid_point_once_as_float32_in_chunks_that_are_reported():
    seen, reported = [], []

    def sdf(points):
        assert points.dtype == np.float32
        seen.append(points)
        return points[:, :1]

    def progress(starts):
        for start in starts:
            reported.append(start)
            yield start

    grid = extraction.sample_grid(sdf, *BOX, 4, 10, progress)
    assert [len(points) for points in seen] == [10, 10, 10, 10, 10, 10, 4]
    assert reported == [0, 10, 20, 30, 40, 50, 60]
    assert len(np.unique(np.concatenate(seen), axis=0)) == 64
    assert np.allclose(grid[:, 0, 0], np.linspace(-1, 1, 4))


# marching cubes


def test_sphere_is_closed_of_one_piece_outwards_and_has_the_volume_and_radius_of_a_sphere():
    mesh = sphere_mesh(0.7, resolution=48)
    assert mesh.is_watertight and mesh.euler_number == 2
    assert mesh.volume == pytest.approx(4 / 3 * np.pi * 0.7**3, rel=5e-3)
    cell = 2.0 / 47
    assert np.abs(np.linalg.norm(mesh.vertices, axis=1) - 0.7).max() < cell**2
    assert (np.sum(mesh.face_normals * mesh.triangles_center, axis=1) > 0).all()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-0.3, 0.3), min_size=3, max_size=3), st.floats(0.2, 0.6), st.integers(12, 24))
def test_vertices_lie_on_the_surface_in_a_box_of_any_shape(center, radius, resolution):
    low, high = np.array([-1.0, -1.2, -0.95]), np.array([1.1, 0.95, 1.3])
    sdf = sphere_sdf(radius, center)
    mesh = extraction.marching_cubes(extraction.sample_grid(sdf, low, high, resolution, 1000), 0.0, low, high)
    cell = np.linalg.norm(high - low) / (resolution - 1)
    assert np.abs(sdf(mesh.vertices)).max() < cell**2 / (8 * radius) * 2 + 1e-5
    assert mesh.volume > 0 and mesh.is_watertight


@pytest.mark.parametrize(
    ("grid", "threshold", "words"),
    [
        (np.full((4, 4, 4), 0.5, np.float32), 0.0, "from 0.5 to 0.5"),
        (np.full((4, 4, 4), -2.0, np.float32), 0.0, "from -2 to -2"),
        (np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 4, 4), 1.5, "crosses -1.5.*--mcube_threshold"),
        (np.linspace(0, 1, 64, dtype=np.float32).reshape(4, 4, 4), 0.0, "from 0 to 1"),
        (np.full((4, 4, 4), np.nan, np.float32), 0.0, "diverged"),
        (np.where(np.arange(64) == 9, np.inf, -1.0).reshape(4, 4, 4), 0.0, "diverged"),
    ],
)
def test_no_surface_is_said_with_its_range_and_cause_and_is_no_slip_of_the_user(grid, threshold, words):
    with pytest.raises(extraction.EmptySurfaceError, match=words) as caught:
        extraction.marching_cubes(grid, threshold, *BOX)
    assert not isinstance(caught.value, UserError)


# export


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_any_similarity_maps_points_scales_volume_and_keeps_faces_outwards(mirror, seed):
    rng = np.random.default_rng(seed)
    mesh, scale = sphere_mesh(0.6, 16), rng.uniform(0.1, 200.0)
    before = mesh.vertices.copy()
    matrix = np.eye(4)
    matrix[:3, :3] = scale * Rotation.random(random_state=seed).as_matrix() @ np.diag([1, 1, -1.0 if mirror else 1.0])
    matrix[:3, 3] = rng.normal(size=3) * 100
    world = export.surface_to_world(Surface(mesh), matrix).mesh
    back = np.linalg.solve(matrix, np.c_[world.vertices, np.ones(len(before))].T).T[:, :3]
    assert np.allclose(back, before, atol=1e-9)
    assert world.volume == pytest.approx(scale**3 * mesh.volume, rel=1e-6)
    assert np.array_equal(mesh.vertices, before)


@pytest.mark.parametrize("mirror", [False, True])
def test_colours_and_normals_go_to_the_world_too(mirror):
    matrix = np.diag([2.0, 2.0, -2.0 if mirror else 2.0, 1.0])
    matrix[:3, :3] = Rotation.random(random_state=1).as_matrix() @ matrix[:3, :3]
    mesh = sphere_mesh(0.6, 16)
    colours = np.random.default_rng(0).integers(0, 256, (len(mesh.vertices), 3), dtype=np.uint8)
    normals = mesh.vertices / np.linalg.norm(mesh.vertices, axis=1, keepdims=True)
    world = export.surface_to_world(Surface(mesh, normals, colours), matrix)
    assert np.array_equal(world.rgb, colours)
    np.testing.assert_allclose(world.normals, normals @ matrix[:3, :3].T / 2.0, atol=1e-9)
    assert export.surface_to_world(Surface(mesh), matrix).normals is None  # none are made up


@pytest.mark.parametrize("seed", range(5))
def test_a_map_onto_a_plane_is_refused_whatever_the_rounding_of_its_determinant(seed):
    matrix = np.eye(4)
    turns = Rotation.random(2, random_state=seed).as_matrix()
    matrix[:3, :3] = turns[0] @ np.diag([2.0, 2.0, 0.0]) @ turns[1]
    with pytest.raises(ValueError, match="singular"):
        export.surface_to_world(Surface(sphere_mesh(0.6, 8)), matrix)


def write(mesh, path):
    """A mesh alone, as its format has it."""
    write_surface(Surface(mesh), path, About("unit", "", 0, ""))


@pytest.mark.parametrize("suffix", [".ply", ".PLY", ".stl"])
def test_mesh_survives_the_disk(tmp_path, suffix):
    mesh, path = sphere_mesh(0.5, 12), tmp_path / "new" / f"mesh{suffix}"
    write(mesh, path)
    back = metrics.read_mesh(path)
    assert np.allclose(back.triangles, mesh.triangles, atol=1e-6)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "a.ply"
    write(plate(), path)
    old = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="a.ply.*No space left"):
        write(plate(5.0), path)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]
