"""The DTU evaluation against a slow statement of its own, on a made-up scan of the same layout."""

import math

import numpy as np
import pytest
import scipy.io
import trimesh

from data.errors import UserError
from data.rays import PinholeCamera
from data.scenes.readers.points import read_dtu
from models.results.surface_metrics import dtu_metrics, masked, thinned

SCAN = 7


def write_reference(folder, scan=SCAN, plane=(0.0, 0.0, 1.0, 0.6), res=0.5):
    """A ball of radius 2 mm with a table, scanned; what was observed is a slanted part of its box."""
    rng = np.random.default_rng(scan)
    ball = rng.normal(size=(900, 3))
    ball = 2.0 * ball / np.linalg.norm(ball, axis=1, keepdims=True) + [3.0, 3.0, 2.0]
    table = np.column_stack([rng.uniform(0, 6, (200, 2)), np.full(200, -0.7)])
    (folder / "ObsMask").mkdir(parents=True)
    (folder / "Points/stl").mkdir(parents=True)
    trimesh.PointCloud(np.concatenate([ball, table])).export(folder / f"Points/stl/stl{scan:03d}_total.ply")
    box = np.array([[0.1, 0.2, -0.3], [6.1, 6.2, 4.7]])
    shape = np.round((box[1] - box[0]) / res).astype(int) + 1
    x, y, z = np.indices(shape)
    observed = (x + y + z > 9).astype(np.uint8)
    scipy.io.savemat(folder / f"ObsMask/ObsMask{scan}_10.mat", {"ObsMask": observed, "BB": box, "Res": res})
    scipy.io.savemat(folder / f"ObsMask/Plane{scan}.mat", {"P": np.array(plane)[:, None]})
    return folder


def surface():
    """A ball that is a little off, with a floater beyond what was observed and one far beyond the box."""
    ball = trimesh.creation.icosphere(2, 2.1)
    ball.vertices += [3.05, 2.9, 2.1]
    floater = trimesh.creation.box((0.9, 0.7, 0.01))
    floater.vertices += [1.0, 0.9, 0.4]
    far = trimesh.creation.box((0.5, 0.5, 0.5))
    far.vertices += [300.0, 0.0, 0.0]
    flat = trimesh.Trimesh([[3, 3, 5], [3, 3, 5], [3, 4, 5.0]], [[0, 1, 2]], process=False)
    return trimesh.util.concatenate([ball, floater, far, flat])


def slow_points(mesh, density):
    """The vertices, then triangle by triangle its lattice."""
    found = [tuple(vertex) for vertex in mesh.vertices]
    for a, b, c in (mesh.vertices[list(face)] for face in mesh.faces):
        u, v = b - a, c - a
        area = float(np.linalg.norm(np.cross(u, v)))
        if area == 0:
            continue
        length_u, length_v = float(np.linalg.norm(u)), float(np.linalg.norm(v))
        step = density * math.sqrt(length_u * length_v / area)
        steps_u, steps_v = math.floor(length_u / step), math.floor(length_v / step)
        for i in range(steps_u + 1):
            for j in range(steps_v + 1):
                s, t = (i + 0.5) / max(steps_u, 1e-7), (j + 0.5) / max(steps_v, 1e-7)
                if s + t < 1:
                    found.append(tuple(a + s * u + t * v))
    return np.array(found)


def slow_thinned(points, distance, order):
    """One after the other, what is not within `distance` of one that was kept."""
    kept = []
    for index in order:
        if all(np.linalg.norm(points[index] - other) > distance for other in kept):
            kept.append(points[index])
    return np.array(kept)


def slow_figures(mesh, folder, scan):
    """The evaluation, sentence by sentence; brute force throughout."""
    points = slow_points(mesh, 0.2)
    points = slow_thinned(points, 0.2, np.random.default_rng(0).permutation(len(points)))
    stored = scipy.io.loadmat(folder / f"ObsMask/ObsMask{scan}_10.mat")
    plane = scipy.io.loadmat(folder / f"ObsMask/Plane{scan}.mat")["P"].ravel()
    low, high = stored["BB"].astype(np.float32).astype(float)
    near = [p for p in points if all(low[i] - 60 <= p[i] < high[i] + 120 for i in range(3))]
    seen = []
    for p in near:
        cell = [round((p[i] - low[i]) / float(stored["Res"].item())) for i in range(3)]
        if all(0 <= cell[i] < stored["ObsMask"].shape[i] for i in range(3)) and stored["ObsMask"][tuple(cell)]:
            seen.append(p)
    scanned = np.asarray(trimesh.load(folder / f"Points/stl/stl{scan:03d}_total.ply").vertices)
    above = [p for p in scanned if plane[0] * p[0] + plane[1] * p[1] + plane[2] * p[2] + plane[3] > 0]

    def mean(these, those):
        nearest = [min(np.linalg.norm(np.asarray(those) - p, axis=1)) for p in these]
        return float(np.mean([d for d in nearest if d < 20]))

    there, back = mean(seen, scanned), mean(above, near)
    return there, back, (there + back) / 2


@pytest.mark.slow
def test_the_figures_are_those_of_the_slow_statement(tmp_path):
    folder, mesh = write_reference(tmp_path / "dtu"), surface()
    found = dtu_metrics(mesh, read_dtu(folder, SCAN))
    expected = slow_figures(mesh, folder, SCAN)
    assert (found.dtu_accuracy, found.dtu_completeness, found.dtu_chamfer) == pytest.approx(expected, rel=1e-9)
    assert found.dtu_scan == SCAN and 0.02 < found.dtu_chamfer < 0.5


def test_thinning_keeps_what_is_not_near_one_that_was_kept():
    points = np.random.default_rng(1).random((3000, 3))
    order = np.random.default_rng(2).permutation(len(points))
    assert np.array_equal(thinned(points, 0.2, np.random.default_rng(2)), slow_thinned(points, 0.2, order))


def test_masks_grown_by_fifty_pixels_in_1600_come_first():
    camera = [PinholeCamera(np.array([[100.0, 0, 50], [0, 100, 50], [0, 0, 1]]), np.eye(4), 101, 101)]
    grid = trimesh.creation.box((0.02, 0.02, 0.02))
    mesh = trimesh.util.concatenate([grid.copy().apply_translation([x, 0, 2]) for x in (-0.4, 0.0, 0.04, 0.4, 3.0)])
    mask = np.zeros((101, 101), np.uint8)
    mask[:, 30:51] = 255  # and three pixels beyond, 0.06 at that depth
    centres = masked(mesh, camera, [mask]).vertices.reshape(-1, 8, 3).mean(axis=1)[:, 0]
    assert centres == pytest.approx([-0.4, 0.0, 0.04, 3.0])  # the last is beyond the photograph
    assert masked(mesh, camera, None) is mesh


def test_a_mesh_of_another_frame_is_a_sentence(tmp_path):
    reference, mesh = read_dtu(write_reference(tmp_path / "dtu"), SCAN), surface()
    mesh.apply_scale(1e-3)
    mesh.vertices += 500.0
    with pytest.raises(UserError, match="not that of the scan in millimetres"):
        dtu_metrics(mesh, reference)


def spoil_mask(folder, scan=SCAN, **arrays):
    whole = {"ObsMask": np.ones((3, 3, 3)), "BB": np.zeros((2, 3)), "Res": 1.0}
    scipy.io.savemat(folder / f"ObsMask/ObsMask{scan}_10.mat", {**whole, **arrays})


DAMAGE = {
    "Plane7.mat: no such file": lambda folder: (folder / "ObsMask/Plane7.mat").unlink(),
    "cannot be read as a .mat file": lambda folder: (folder / "ObsMask/ObsMask7_10.mat").write_bytes(b"hello"),
    "BB has 5 numbers and must have 6": lambda folder: spoil_mask(folder, BB=np.zeros(5)),
    "Res is 0": lambda folder: spoil_mask(folder, Res=0.0),
    "no array BB of finite numbers": lambda folder: spoil_mask(folder, BB=np.full((2, 3), np.nan)),
}


@pytest.mark.parametrize("words", DAMAGE)
def test_a_damaged_reference_is_a_sentence(words, tmp_path):
    folder = write_reference(tmp_path / "dtu")
    DAMAGE[words](folder)
    with pytest.raises(UserError, match=words):
        read_dtu(folder, SCAN)
