"""Metrics of a surface against ground truth: closed forms, a slow reference implementation, and invalid files."""

import numpy as np
import pytest
import trimesh

from data.errors import UserError
from models.evaluation.ground_truth import GroundTruth, read_ground_truth
from models.evaluation.surface_metrics import against_truth


def truth(mesh):
    return GroundTruth("--gt", np.asarray(mesh.vertices), np.asarray(mesh.faces))


def square(height=0.0, tilt=0.0):
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) + [0, 0, height]
    vertices[:, 2] += tilt * vertices[:, 0]
    return trimesh.Trimesh(vertices, [[0, 1, 2], [0, 2, 3]], process=False)


def test_concentric_spheres_are_as_far_apart_as_their_radii_and_look_the_same_way():
    small, large = trimesh.creation.icosphere(5, 1.0), trimesh.creation.icosphere(5, 1.1)
    found = against_truth(small, truth(large), tau=0.2, samples=20_000)
    assert [found.accuracy, found.completeness, found.chamfer] == pytest.approx([0.1] * 3, abs=5e-4)
    assert found.f_score == found.precision == found.recall == 1.0 and found.normal_consistency > 0.999
    assert against_truth(small, truth(large), tau=0.05).f_score == 0.0


def test_what_is_extra_costs_accuracy_and_precision_and_what_is_missing_the_others():
    half = square()
    whole = trimesh.util.concatenate([square(), square(height=1.0)])
    extra = against_truth(whole, truth(half), tau=0.1, samples=50_000)
    assert extra.accuracy == pytest.approx(0.5, abs=0.01) and extra.completeness < 1e-12
    assert extra.precision == pytest.approx(0.5, abs=0.01) and extra.recall == 1.0
    assert extra.f_score == pytest.approx(2 / 3, abs=0.01)  # the harmonic mean of 1/2 and 1
    missing = against_truth(half, truth(whole), tau=0.1, samples=50_000)
    assert missing.accuracy < 1e-12 and missing.recall == pytest.approx(0.5, abs=0.01) and missing.precision == 1.0


@pytest.mark.parametrize("suffix", ["ply", "obj", "stl"])
def test_a_mesh_and_a_cloud_are_read_into_the_working_frame(suffix, tmp_path):
    mesh = trimesh.creation.icosphere(2, 2.5)
    mesh.vertices += [4.0, -7.0, 1.5]
    mesh.export(tmp_path / f"gt.{suffix}")
    trimesh.PointCloud(mesh.vertices).export(tmp_path / "points.ply")
    to_working = np.linalg.inv(np.array([[2.5, 0, 0, 4], [0, 2.5, 0, -7], [0, 0, 2.5, 1.5], [0, 0, 0, 1.0]]))
    found = read_ground_truth(tmp_path / f"gt.{suffix}", "--gt", to_working)
    assert np.linalg.norm(found.points, axis=1) == pytest.approx(1.0, abs=1e-6) and found.mesh.area == pytest.approx(
        4 * np.pi, rel=0.05
    )
    cloud = read_ground_truth(tmp_path / "points.ply", "--gt", to_working)
    assert cloud.faces is None and np.linalg.norm(cloud.points, axis=1) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gone.ply", None, "no such mesh file"),
        ("gt.gltf", b"{}", "is not a .ply, .obj or .stl file"),
        ("gt.ply", b"hello", "cannot be read as a mesh"),
        ("gt.ply", b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nend_header\n", "gt.ply"),
        (
            "gt.ply",
            b"ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty float z\n"
            b"end_header\n0 0 0\n",
            "is truncated",
        ),
    ],
)
def test_what_cannot_be_read_is_a_sentence(name, content, words, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=words):
        read_ground_truth(tmp_path / name, "--gt", None)


def test_a_mesh_so_small_that_its_place_swallows_it_gets_its_sentence(tmp_path):
    box = trimesh.creation.box()
    trimesh.Trimesh(1e-20 * box.vertices, box.faces, process=False).export(tmp_path / "gt.ply")
    to_working = trimesh.transformations.translation_matrix([1.0, 2.0, 3.0])
    with pytest.raises(UserError, match="gt.ply: its triangles have no area in the frame of the scene"):
        read_ground_truth(tmp_path / "gt.ply", "--gt", to_working)
