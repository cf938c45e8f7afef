"""benchmarks/bm_peers.py with stand-ins for the other programs: what they get, and what is made of their results."""

import json
import sys
from dataclasses import replace

import numpy as np
import pycolmap
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from benchmarks import bm_peers
from benchmarks.peers import files, programs, results
from benchmarks.peers.photographs import make_task, of_one_camera
from data.cameras import image_pixels
from data.config import DatasetConfig
from data.errors import UserError
from data.parsed_scene import SparsePoints
from data.scenes.load import load_scene
from data.scenes.scene import Scene

RADIUS = 0.5  # of the sphere that all stand-ins reconstruct
VIEWS = 5


def pose(view):
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_euler("yxz", [0.4 * view, 0.2 * view - 0.3, 0.1]).as_matrix()
    turn[:3, 3] = -3.0 * turn[:3, 2]
    return turn


def picture(intrinsics, width, height):
    """Colours that depend smoothly on the direction in the frame of the camera."""
    pixels = np.concatenate([image_pixels(width, height), np.ones((height, width, 1))], axis=-1)
    x, y, _ = np.moveaxis(pixels @ np.linalg.inv(intrinsics).T, -1, 0)
    return np.rint(128 + 100 * np.stack([np.sin(3 * x), np.sin(4 * y), np.sin(2 * x + y)], axis=-1)).astype(np.uint8)


def scene():
    matrices = [np.array([[90.0 + view, 0, 41.0], [0, 88, 29.5 + view], [0, 0, 1]]) for view in range(VIEWS)]
    xyz = trimesh.creation.icosphere(2, RADIUS).vertices
    points = SparsePoints(
        np.array(xyz), np.full(len(xyz), 5), np.full(len(xyz), 0.5), np.full((len(xyz), 3), 9, np.uint8)
    )
    return Scene(
        name="ball",
        image_names=tuple("abcde"),
        images=tuple(picture(matrix, 80, 64) for matrix in matrices),
        masks=tuple(np.full((64, 80), 255, np.uint8) for _ in matrices),
        intrinsics=np.array(matrices),
        c2w=np.array([pose(view) for view in range(VIEWS)]),
        scene_to_world=np.diag([2.0, 2, 2, 1]),
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
        points=points,
    )


@pytest.fixture(scope="module")
def task():
    return make_task(scene(), None)


@pytest.fixture
def stand_in(tmp_path):
    """Makes programs that check their words and write a sphere or its points to a file."""
    trimesh.creation.icosphere(3, RADIUS).export(tmp_path / "sphere.ply")
    trimesh.PointCloud(trimesh.creation.icosphere(3, RADIUS).vertices).export(tmp_path / "points.ply")
    folder = tmp_path / "programs"
    folder.mkdir()

    def make(name, words, needed, written, source="sphere.ply"):
        path = folder / name
        path.write_text(
            f"#!{sys.executable} -S\nimport os, shutil, sys\n"
            f"assert sys.argv[1:] == {[str(word) for word in words]!r}, sys.argv\n"
            f"assert os.environ['OMP_NUM_THREADS'] == '1'\n"
            f"assert all(map(os.path.exists, {[str(each) for each in needed]!r})), os.listdir()\n"
            f"shutil.copy({str(tmp_path / source)!r}, {written!r})\n"
        )
        path.chmod(0o755)

    make.folder = folder
    return make


def test_the_photographs_become_those_of_one_camera():
    alike = of_one_camera(scene())
    width, height = alike.size(0)
    assert {alike.size(view) for view in range(VIEWS)} == {(width, height)} and width > 70 and height > 50
    assert np.ptp(alike.intrinsics, axis=0).max() == 0 and alike.intrinsics[0, 0, 0] == alike.intrinsics[0, 1, 1]
    assert np.allclose(alike.intrinsics[0, :2, 2], [(width - 1) / 2, (height - 1) / 2])
    for image in alike.images:
        assert np.abs(image.astype(int) - picture(alike.intrinsics[0], width, height)).max() <= 3


def test_photographs_of_unlike_cameras_are_refused():
    one = scene()
    longer = one.intrinsics * np.where(np.arange(VIEWS) == 0, 4.0, 1.0)[:, None, None]
    longer[:, :, 2] = one.intrinsics[:, :, 2]
    with pytest.raises(UserError, match="differ too much"):
        of_one_camera(replace(one, intrinsics=longer))


def test_every_eighth_point_is_held_out_from_all(task):
    given = scene().points.xyz
    assert np.array_equal(task.witness, given[::8])
    assert len(task.points.xyz) + len(task.witness) == len(given)
    assert task.seen.shape == (VIEWS, len(task.points.xyz)) and task.seen.sum(axis=0).min() >= 2


def test_a_scene_without_points_needs_a_file():
    with pytest.raises(UserError, match="--points"):
        make_task(replace(scene(), points=None), None)


def test_the_written_cameras_and_points_agree_with_the_scene(tmp_path, task):
    files.write_task(tmp_path, task)
    own = load_scene(DatasetConfig(str(tmp_path / files.SCENE), "cameras_sphere.npz", "cameras_sphere.npz"))
    assert own.masks is None and own.points is None
    assert np.allclose(own.c2w, task.scene.c2w) and np.allclose(own.scene_to_world, np.eye(4))
    model = pycolmap.Reconstruction(str(tmp_path / files.MODEL))
    model.update_point_3d_errors()
    assert model.compute_num_observations() == task.seen.sum() and model.compute_mean_reprojection_error() < 1e-6
    for view, image in enumerate(model.images[number] for number in range(1, VIEWS + 1)):
        assert (tmp_path / files.IMAGES / image.name).is_file()
        assert np.allclose(image.cam_from_world().inverse().matrix(), task.scene.c2w[view][:3])


def test_the_file_of_visualsfm_projects_its_points_to_their_places(tmp_path, task):
    lines = list(files.nvm_lines(task))
    cameras = [line.split() for line in lines[2 : 2 + VIEWS]]
    points = [line.split() for line in lines[3 + VIEWS :]]
    assert int(lines[1]) == VIEWS and int(lines[2 + VIEWS]) == len(points) == len(task.points.xyz)
    for point in points[::7]:
        xyz, count, rest = np.array(point[:3], float), int(point[6]), point[7:]
        assert len(rest) == 4 * count
        for view, _, *place in np.reshape(rest, (count, 4)):
            focal, w, x, y, z, *centre = map(float, cameras[int(view)][1:9])
            seen = Rotation.from_quat([x, y, z, w]).apply(xyz - centre)
            assert np.allclose(focal * seen[:2] / seen[2], np.array(place, float), atol=1e-4)


def test_openmvs_gets_its_words_and_its_result_is_measured(tmp_path, stand_in, task):
    folder = tmp_path / "openmvs"
    files.write_task(tmp_path, task)
    words = ["-i", tmp_path, "-o", folder / "scene.mvs", "--image-folder", files.IMAGES]
    needed = [tmp_path / "sparse/cameras.txt", tmp_path / "sparse/images.txt", tmp_path / files.IMAGES / "000.png"]
    stand_in("InterfaceCOLMAP", words, needed, "scene.mvs")
    words = ["scene.mvs", "--resolution-level", "0", "--max-threads", "1"]
    stand_in("DensifyPointCloud", words, ["scene.mvs"], "scene_dense.ply", "points.ply")
    words = ["scene_dense.mvs", "-p", "scene_dense.ply", "--max-threads", "1"]
    stand_in("ReconstructMesh", words, ["scene_dense.ply"], "scene_dense_mesh.ply")
    words = ["scene_dense.mvs", "-m", "scene_dense_mesh.ply", "-o", "scene_dense_mesh_refine.mvs"]
    words += ["--max-threads", "1"]
    stand_in("RefineMesh", words, ["scene_dense_mesh.ply"], "scene_dense_mesh_refine.ply")
    row, _ = results.run(programs.openmvs(stand_in.folder, tmp_path, folder, 1), folder, task, 1)
    assert (row.program, row.note, row.triangles, row.points) == ("OpenMVS", "", 1280, 642)
    assert row.mesh_median < 0.005 and row.cloud_median < 1e-6 and row.cloud_p90 < 1e-6
    assert row.wall > row.processor > 0 and row.peak_mib > 1


def test_mve_gets_its_words_and_its_result_is_measured(tmp_path, stand_in, task):
    files.write_task(tmp_path, task)
    stand_in("makescene", [tmp_path / "scene.nvm", "scene"], [tmp_path / "scene.nvm"], "scene")
    stand_in("dmrecon", ["-s0", "scene"], ["scene"], "depth")
    stand_in("scene2pset", ["-F0", "scene", "points.ply"], ["depth"], "points.ply", "points.ply")
    stand_in("fssrecon", ["points.ply", "surface.ply"], ["points.ply"], "surface.ply")
    stand_in("meshclean", ["-t10", "surface.ply", "mesh.ply"], ["surface.ply"], "mesh.ply")
    row, _ = results.run(programs.mve(stand_in.folder, tmp_path), tmp_path / "mve", task, 1)
    assert (row.program, row.note, row.triangles, row.points) == ("MVE", "", 1280, 642)
    assert row.mesh_median < 0.005 and row.cloud_p90 < 1e-6


def test_a_program_that_fails_is_a_row_with_its_last_words(tmp_path, stand_in, task):
    stand_in("makescene", ["other"], [], "scene")
    for name in programs.MVE[1:]:
        stand_in(name, [], [], "nothing")
    row, result = results.run(programs.mve(stand_in.folder, tmp_path), tmp_path / "mve", task, 1)
    assert result is None and row.mesh_median is None
    assert row.note.startswith("makescene ended with status 1: AssertionError")
    assert "| MVE | - | - |" in results.table([row])


# In a frame of its own: the cameras of the scene after a similarity, the last one left out.
PIXELMAP = """
import types
from pathlib import Path
import numpy as np

class ReconstructionError(Exception):
    pass

def reconstruct(photos, *, quality, focal_px):
    with np.load(Path(__file__).with_name("own.npz")) as own:
        assert quality == "low" and abs(focal_px - own["focal"]) < 1e-9 and len(photos) == len(own["poses"])
        poses = [types.SimpleNamespace(matrix=pose) for pose in own["poses"]]
        if own["fails"]:
            raise ReconstructionError("too few points")
        return types.SimpleNamespace(vertices=own["vertices"], triangles=own["triangles"], cameras=poses[:-1] + [None])
"""


def pretend_pixelmap(folder, task, fails):
    turn, shift, scale = Rotation.from_euler("xyz", [0.5, 1.1, -0.2]).as_matrix(), np.array([4.0, -1, 2]), 0.3
    poses = []
    for c2w in task.scene.c2w:
        rotation = (turn @ c2w[:3, :3]).T
        poses.append(np.c_[rotation, -rotation @ (scale * turn @ c2w[:3, 3] + shift)])
    sphere = trimesh.creation.icosphere(3, RADIUS)
    own = {"poses": poses, "vertices": scale * sphere.vertices @ turn.T + shift, "triangles": sphere.faces}
    np.savez(folder / "own.npz", **own, focal=task.scene.intrinsics[0, 0, 0], fails=fails)
    (folder / "pixelmap_multiview.py").write_text(PIXELMAP)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def test_the_mesh_of_pixelmap_is_moved_onto_the_given_cameras(tmp_path, task):
    files.write_task(tmp_path, task)
    python = pretend_pixelmap(tmp_path, task, fails=False)
    program = programs.pixelmap(python, "low", tmp_path, task.scene.c2w)
    row, result = results.run(program, tmp_path / "pixelmap", task, 1)
    assert row.note == "own cameras: 4 of 5, median error of their centres 0.0000 radii"
    assert np.allclose(np.linalg.norm(result.mesh.vertices, axis=1), RADIUS) and row.mesh_p90 < 0.005
    shown = results.picture(task, 0, [(program.name, result)])
    assert shown.shape == (task.scene.images[0].shape[0], 2 * task.scene.images[0].shape[1], 3)


def test_photographs_that_pixelmap_rejects_are_told(tmp_path, task):
    files.write_task(tmp_path, task)
    python = pretend_pixelmap(tmp_path, task, fails=True)
    row, result = results.run(programs.pixelmap(python, "low", tmp_path, task.scene.c2w), tmp_path / "out", task, 1)
    assert result is None and row.note == "python ended with status 1: too few points"


@pytest.mark.parametrize("flag", ["--openmvs", "--mve", "--pixelmap"])
def test_a_path_without_the_programs_is_one_sentence(tmp_path, capsys, flag):
    trimesh.PointCloud(0.3 * trimesh.creation.icosphere(1).vertices).export(tmp_path / "points.ply")
    words = ["--scene", "data/demo", "--points", str(tmp_path / "points.ply"), "--out", str(tmp_path / "out")]
    assert bm_peers.main([*words, flag, str(tmp_path)]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith(f"error: {flag} {tmp_path}: ") and "\n" not in told
    assert not (tmp_path / "out").exists()


def test_all_rows_and_where_they_come_from_are_written(tmp_path, stand_in, task, monkeypatch, capsys):
    def sphere(conf, settings, out, folder):
        words = (sys.executable, "-c", f"import shutil; shutil.copy({str(tmp_path / 'sphere.ply')!r}, 'mesh.ply')")
        return programs.Program("ours", (words,), lambda found: programs.Result(programs.read_mesh(found / "mesh.ply")))

    monkeypatch.setattr(programs, "ours", sphere)
    assert (
        bm_peers.main(
            ["--scene", "data/demo", "--points", str(tmp_path / "points.ply"), "--out", str(tmp_path / "out")]
        )
        == 0
    )
    told = json.loads((tmp_path / "out/peers.json").read_text())
    assert [row["program"] for row in told["rows"]] == ["ours"] and told["threads"] == 1 and "commit" in told
    assert (tmp_path / "out/peers.md").read_text() in capsys.readouterr().out
    assert (tmp_path / "out/peers.jpg").is_file()
