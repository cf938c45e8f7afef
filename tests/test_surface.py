"""The surface room: grid, marching cubes, export and surface distances, against analytic solids and slow oracles."""

import dataclasses

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from data.errors import UserError
from models.surface import export, extraction, metrics

BOX = (np.array([-1.0, -1.0, -1.0]), np.array([1.0, 1.0, 1.0]))


def sphere_sdf(radius, center=(0.0, 0.0, 0.0)):
    return lambda points: np.linalg.norm(points - np.float32(center), axis=-1) - np.float32(radius)


def lopsided(points):
    return points[:, 0] + 10.0 * points[:, 1] ** 2 - 3.0 * points[:, 2]


def sphere_mesh(radius, resolution=40, threshold=0.0):
    grid = extraction.sample_grid(sphere_sdf(radius), *BOX, resolution, 10**6)
    return extraction.marching_cubes(grid, threshold, *BOX)


def square(height=0.0, size=1.0):
    vertices = size * np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) + [0, 0, height]
    return trimesh.Trimesh(vertices, [[0, 1, 2], [0, 2, 3]], process=False)


def slow_distance(point, corners):
    """Nearest point of one triangle by cases, one at a time: its plane where the foot falls inside, else its edges."""
    a, b, c = corners
    nearest = []
    for start, end in ((a, b), (b, c), (c, a)):
        along = end - start
        share = np.clip((point - start) @ along / max(along @ along, 1e-300), 0.0, 1.0)
        nearest.append(np.linalg.norm(point - start - share * along))
    normal = np.cross(b - a, c - a)
    if normal @ normal > 1e-20:
        foot = point - normal * ((point - a) @ normal) / (normal @ normal)
        sides = [np.cross(q - p, foot - p) @ normal for p, q in ((a, b), (b, c), (c, a))]
        if min(sides) >= 0.0:
            nearest.append(np.linalg.norm(point - foot))
    return min(nearest)


# the grid


def test_grid_holds_the_function_at_evenly_spaced_points_corners_included_in_x_y_z_order():
    low, high, n = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 5.0]), 5
    grid = extraction.sample_grid(lopsided, low, high, n, 7)
    assert grid.shape == (n, n, n) and grid.dtype == np.float32
    for i, j, k in np.ndindex(n, n, n):
        point = low + (high - low) * np.array([i, j, k]) / (n - 1)
        assert grid[i, j, k] == pytest.approx(lopsided(point[None])[0], abs=1e-5)


@pytest.mark.parametrize("chunk", [1, 10, 342, 343, 344, 10**6])
def test_chunk_size_never_changes_the_grid(chunk):
    expected = extraction.sample_grid(lopsided, *BOX, 7, 49)
    assert np.array_equal(extraction.sample_grid(lopsided, *BOX, 7, chunk), expected)


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


@pytest.mark.parametrize(("resolution", "chunk", "word"), [(1, 10, "--resolution 1"), (0, 10, "0"), (4, 0, "chunk 0")])
def test_impossible_grid_is_the_users_mistake(resolution, chunk, word):
    with pytest.raises(UserError, match=word):
        extraction.sample_grid(lopsided, *BOX, resolution, chunk)


# marching cubes


def test_sphere_is_closed_of_one_piece_outwards_and_has_the_volume_and_radius_of_a_sphere():
    mesh = sphere_mesh(0.7, resolution=48)
    assert mesh.is_watertight and mesh.euler_number == 2
    assert mesh.volume == pytest.approx(4 / 3 * np.pi * 0.7**3, rel=5e-3)
    cell = 2.0 / 47
    assert np.abs(np.linalg.norm(mesh.vertices, axis=1) - 0.7).max() < cell**2
    assert (np.sum(mesh.face_normals * mesh.triangles_center, axis=1) > 0).all()


@pytest.mark.parametrize("threshold", [0.1, -0.15])
def test_threshold_is_of_minus_sdf_so_that_a_positive_one_moves_the_surface_inwards(threshold):
    radii = np.linalg.norm(sphere_mesh(0.7, threshold=threshold).vertices, axis=1)
    assert np.allclose(radii, 0.7 - threshold, atol=3e-3)


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
    world = export.to_world(mesh, matrix)
    back = np.linalg.solve(matrix, np.c_[world.vertices, np.ones(len(before))].T).T[:, :3]
    assert np.allclose(back, before, atol=1e-9)
    assert world.volume == pytest.approx(scale**3 * mesh.volume, rel=1e-6)
    assert np.array_equal(mesh.vertices, before)


@pytest.mark.parametrize(
    "matrix",
    [np.eye(3), np.diag([1.0, 1.0, 0.0, 1.0]), np.diag([1.0, 1.0, 1.0, 2.0]), np.full((4, 4), np.nan)],
    ids=["3x3", "singular", "projective", "nan"],
)
def test_matrix_that_leads_nowhere_is_refused(matrix):
    with pytest.raises(ValueError, match="scene_to_world"):
        export.to_world(square(), matrix)


@pytest.mark.parametrize("suffix", [".ply", ".PLY", ".obj", ".stl", ".off"])
def test_mesh_survives_the_disk(tmp_path, suffix):
    mesh, path = sphere_mesh(0.5, 12), tmp_path / "new" / f"mesh{suffix}"
    export.write_mesh(mesh, path)
    back = metrics.read_mesh(path)
    assert np.allclose(back.triangles, mesh.triangles, atol=1e-6)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_ply_is_binary(tmp_path):
    export.write_mesh(square(), tmp_path / "a.ply")
    assert b"format binary_little_endian" in (tmp_path / "a.ply").read_bytes()[:100]


def test_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "a.ply"
    export.write_mesh(square(), path)
    old = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export.os, "replace", full)
    with pytest.raises(UserError, match="a.ply.*No space left"):
        export.write_mesh(square(5.0), path)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]


def test_place_that_cannot_hold_a_mesh_is_the_users_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a.ply: cannot be written"):
        export.write_mesh(square(), tmp_path / "file" / "a.ply")
    with pytest.raises(UserError, match=r"a\.png.*\.ply"):
        export.write_mesh(square(), tmp_path / "a.png")


POINT_CLOUD = (
    b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("garbage.ply", b"garbage"),
        ("empty.ply", b""),
        ("points.ply", POINT_CLOUD + b"0 0 0\n"),
        ("broken.obj", b"v 0 0 0\nf 1 2 3\n"),
        ("short.off", b"OFF\n3 1 0\n0 0"),
        ("empty.stl", b"abc"),
        ("nan.obj", b"v 0 0 nan\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"),
        ("unknown.xyz9", b"1"),
        ("missing.ply", None),
    ],
)
def test_bad_mesh_file_is_named_in_one_sentence(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name) as caught:
        metrics.read_mesh(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_mesh_file_cut_short_is_named(tmp_path):
    export.write_mesh(sphere_mesh(0.5, 12), tmp_path / "a.ply")
    (tmp_path / "a.ply").write_bytes((tmp_path / "a.ply").read_bytes()[:-100])
    with pytest.raises(UserError, match="a.ply"):
        metrics.read_mesh(tmp_path / "a.ply")


# distances


@pytest.mark.parametrize("seed", range(3))
def test_distance_to_a_mesh_is_to_its_nearest_triangle(seed):
    rng = np.random.default_rng(seed)
    corners = rng.normal(size=(12, 3, 3))
    corners[0, 2] = corners[0, 1]
    corners[1] *= 0.01
    points = rng.normal(size=(60, 3)) * 2
    mesh = trimesh.Trimesh(corners.reshape(-1, 3), np.arange(36).reshape(12, 3), process=False)
    expected = [min(slow_distance(point, triangle) for triangle in corners) for point in points]
    assert np.allclose(metrics.point_to_mesh(points, mesh), expected, atol=1e-9)


def test_concentric_spheres_are_as_far_apart_as_their_radii_differ():
    small, large = trimesh.creation.icosphere(5, 1.0), trimesh.creation.icosphere(5, 1.1)
    result = metrics.chamfer(small, large, samples=20_000)
    assert [result.mean_ab, result.mean_ba, result.chamfer] == pytest.approx([0.1] * 3, abs=5e-4)


def test_a_surface_has_no_distance_to_itself_and_parallel_squares_have_their_gap():
    assert metrics.chamfer(square(), square(), 2000).chamfer < 1e-12
    assert metrics.chamfer(square(), square(0.25), 2000).chamfer == pytest.approx(0.25)


def test_each_direction_is_measured_from_its_own_surface_and_chamfer_is_their_mean():
    wide, narrow = square(size=2.0), square(size=1.0)
    result = metrics.chamfer(wide, narrow, 200_000)
    # Over [0, 2]^2: distance to [0, 1]^2 is x or y beyond 1 (mean 1/2 over two of the four unit squares) and
    # sqrt(x^2 + y^2) over the fourth, whose mean over the unit square is (sqrt 2 + asinh 1) / 3.
    expected = (0.5 + 0.5 + (np.sqrt(2) + np.arcsinh(1)) / 3) / 4
    assert result.mean_ab == pytest.approx(expected, abs=3e-3)
    assert result.mean_ba < 1e-12
    assert result.chamfer == pytest.approx(0.5 * (result.mean_ab + result.mean_ba))
    swapped = metrics.chamfer(narrow, wide, 200_000)
    assert (swapped.mean_ab, swapped.mean_ba) == pytest.approx((result.mean_ba, result.mean_ab), abs=4e-3)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.01, 1000.0))
def test_chamfer_scales_with_the_unit(scale):
    result = metrics.chamfer(square(size=scale), square(0.3 * scale, 0.5 * scale), 500)
    unit = metrics.chamfer(square(), square(0.3, 0.5), 500)
    assert dataclasses.astuple(result) == pytest.approx([scale * value for value in dataclasses.astuple(unit)])


def test_same_seed_same_figure_other_seed_nearly_so():
    meshes = square(size=2.0), square()
    first = metrics.chamfer(*meshes, 5000, seed=4)
    assert first == metrics.chamfer(*meshes, 5000, seed=4)
    other = metrics.chamfer(*meshes, 5000, seed=5)
    assert first != other and first.chamfer == pytest.approx(other.chamfer, abs=0.02)


def test_samples_are_uniform_by_area_whatever_the_triangles():
    # The same 1 x 1 square cut into one slim, one broad and one flat (zero-area) triangle fan.
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0.1, 0]])
    mesh = trimesh.Trimesh(vertices, [[0, 1, 4], [4, 1, 2], [4, 2, 3], [0, 0, 1]], process=False)
    points = metrics.sample_surface(mesh, 100_000, np.random.default_rng(0))
    counts = np.histogram2d(points[:, 0], points[:, 1], bins=10, range=[[0, 1], [0, 1]])[0]
    assert counts.sum() == 100_000
    assert np.sum((counts - 1000.0) ** 2 / 1000.0) < 149  # chi-square, 99 degrees of freedom: 0.1 % above 148.2


def test_mesh_without_area_is_refused():
    flat = trimesh.Trimesh(np.zeros((3, 3)), [[0, 1, 2]], process=False)
    with pytest.raises(ValueError, match="area"):
        metrics.chamfer(flat, square())
