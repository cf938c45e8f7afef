"""Surface distances, against closed forms and a slow point-to-triangle oracle; and meshes that cannot be read."""

import numpy as np
import pytest
import trimesh

from data.errors import UserError
from models.mesh.mesh import read_mesh
from models.results import surface_metrics as metrics
from models.results.surface_metrics import GroundTruth, against_truth, read_ground_truth


def square(height=0.0, size=1.0):
    vertices = size * np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) + [0, 0, height]
    return trimesh.Trimesh(vertices, [[0, 1, 2], [0, 2, 3]], process=False)


def compared(mesh, other, samples=2000, **named):
    return against_truth(mesh, GroundTruth("--gt", other.vertices, other.faces), samples=samples, seed=0, **named)


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


PROPERTIES = b"property float x\nproperty float y\nproperty float z\nend_header\n0 0 0\n"
POINTS = b"ply\nformat ascii 1.0\nelement vertex %d\n" + PROPERTIES


@pytest.mark.parametrize("read", [read_mesh, lambda path: read_ground_truth(path, "--gt", None)])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("garbage.ply", b"garbage"),
        ("flat.obj", b"v 1 2 0\nv 1 2 0\nv 1 2 0\nf 1 2 3\n"),
        ("cut.ply", trimesh.creation.icosphere(2).export(file_type="ply")[:-100]),
        ("points.ply", POINTS % 2),
        ("broken.obj", b"v 0 0 0\nf 1 2 3\n"),
        ("nan.obj", b"v 0 0 nan\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"),
        ("unknown.xyz9", b"1"),
        ("missing.ply", None),
    ],
)
def test_a_mesh_file_that_cannot_be_read_is_a_sentence(tmp_path, read, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)


# distances


def test_distance_to_a_mesh_is_to_its_nearest_triangle():
    rng = np.random.default_rng(0)
    corners = rng.normal(size=(12, 3, 3))
    corners[0, 2] = corners[0, 1]
    corners[1] *= 0.01
    points = rng.normal(size=(100, 3)) * 2
    mesh = trimesh.Trimesh(corners.reshape(-1, 3), np.arange(36).reshape(12, 3), process=False)
    expected = [min(slow_distance(point, triangle) for triangle in corners) for point in points]
    assert np.allclose(metrics.point_to_mesh(points, mesh), expected, atol=1e-9)


def test_parallel_squares_have_their_gap_and_spheres_that_of_their_radii():
    assert compared(square(), square()).chamfer < 1e-12
    assert compared(square(), square(0.25)).chamfer == pytest.approx(0.25)
    with pytest.raises(ValueError, match="area"):
        compared(trimesh.Trimesh(np.zeros((3, 3)), [[0, 1, 2]], process=False), square())
    small, large = trimesh.creation.icosphere(5, 1.0), trimesh.creation.icosphere(5, 1.1)
    found = compared(small, large, 20_000, tau=0.2)
    assert [found.accuracy, found.completeness, found.chamfer] == pytest.approx([0.1] * 3, abs=5e-4)
    assert found.f_score == found.precision == found.recall == 1.0 and found.normal_consistency > 0.999
    assert compared(small, large, tau=0.05).f_score == 0.0


def test_what_is_extra_costs_precision_and_what_is_missing_recall():
    half, whole = square(), trimesh.util.concatenate([square(), square(height=1.0)])
    extra, missing = compared(whole, half, 50_000, tau=0.1), compared(half, whole, 50_000, tau=0.1)
    assert (extra.accuracy, extra.precision, extra.f_score) == pytest.approx((0.5, 0.5, 2 / 3), abs=0.01)
    assert extra.completeness < 1e-12 and extra.recall == 1.0
    assert missing.accuracy < 1e-12 and missing.recall == pytest.approx(0.5, abs=0.01) and missing.precision == 1.0


def test_samples_are_uniform_by_area_whatever_the_triangles():
    # The same 1 x 1 square cut into one slim, one broad and one flat (zero-area) triangle fan.
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0.1, 0]])
    mesh = trimesh.Trimesh(vertices, [[0, 1, 4], [4, 1, 2], [4, 2, 3], [0, 0, 1]], process=False)
    points = metrics.sample_faces(mesh, 100_000, np.random.default_rng(0))[0]
    counts = np.histogram2d(points[:, 0], points[:, 1], bins=10, range=[[0, 1], [0, 1]])[0]
    assert counts.sum() == 100_000
    assert np.sum((counts - 1000.0) ** 2 / 1000.0) < 149  # chi-square, 99 degrees of freedom: 0.1 % above 148.2


def test_a_mesh_and_a_cloud_are_read_into_the_working_frame(tmp_path):
    mesh = trimesh.creation.icosphere(2, 2.5)
    mesh.vertices += [4.0, -7.0, 1.5]
    mesh.export(tmp_path / "gt.obj")
    trimesh.PointCloud(mesh.vertices).export(tmp_path / "points.ply")
    to_working = np.linalg.inv(np.array([[2.5, 0, 0, 4], [0, 2.5, 0, -7], [0, 0, 2.5, 1.5], [0, 0, 0, 1.0]]))
    found = read_ground_truth(tmp_path / "gt.obj", "--gt", to_working)
    cloud = read_ground_truth(tmp_path / "points.ply", "--gt", to_working)
    assert found.mesh.area == pytest.approx(4 * np.pi, rel=0.05) and cloud.faces is None
    for points in (found.points, cloud.points):
        assert np.linalg.norm(points, axis=1) == pytest.approx(1.0, abs=1e-6)


def test_a_few_points_are_no_surface_to_compare_with(tmp_path):
    for count, is_enough in ((1, False), (99, False), (100, True)):
        trimesh.PointCloud(np.random.default_rng(0).random((count, 3))).export(tmp_path / "a.ply")
        if is_enough:
            assert len(read_ground_truth(tmp_path / "a.ply", "--gt", None).points) == count
        else:
            with pytest.raises(UserError, match=f"a.ply: contains {count} points and no triangles"):
                read_ground_truth(tmp_path / "a.ply", "--gt", None)
