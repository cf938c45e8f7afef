"""Surface distances, against closed forms and a slow point-to-triangle oracle; and meshes that cannot be read."""

import numpy as np
import pytest
import trimesh

from data.errors import UserError
from models.evaluation import mesh_distance as metrics
from models.evaluation.ground_truth import GroundTruth
from models.evaluation.surface_metrics import against_truth


def square(height=0.0, size=1.0):
    vertices = size * np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) + [0, 0, height]
    return trimesh.Trimesh(vertices, [[0, 1, 2], [0, 2, 3]], process=False)


def compared(mesh, other, samples=2000, seed=0):
    return against_truth(mesh, GroundTruth("--gt", other.vertices, other.faces), samples=samples, seed=seed)


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


# reading


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
    trimesh.creation.icosphere(2).export(tmp_path / "a.ply")
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


def test_a_surface_has_no_distance_to_itself_and_parallel_squares_have_their_gap():
    assert compared(square(), square(), 2000).chamfer < 1e-12
    assert compared(square(), square(0.25), 2000).chamfer == pytest.approx(0.25)


def test_each_direction_is_measured_from_its_own_surface_and_chamfer_is_their_mean():
    wide, narrow = square(size=2.0), square(size=1.0)
    result = compared(wide, narrow, 200_000)
    # Over [0, 2]^2: distance to [0, 1]^2 is x or y beyond 1 (mean 1/2 over two of the four unit squares) and
    # sqrt(x^2 + y^2) over the fourth, whose mean over the unit square is (sqrt 2 + asinh 1) / 3.
    expected = (0.5 + 0.5 + (np.sqrt(2) + np.arcsinh(1)) / 3) / 4
    assert result.accuracy == pytest.approx(expected, abs=3e-3)
    assert result.completeness < 1e-12
    assert result.chamfer == pytest.approx(0.5 * (result.accuracy + result.completeness))
    swapped = compared(narrow, wide, 200_000)
    assert (swapped.accuracy, swapped.completeness) == pytest.approx((result.completeness, result.accuracy), abs=4e-3)


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
        compared(flat, square())
