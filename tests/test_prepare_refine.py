"""The last adjustment finds the lens that a simple camera model cannot have; and leaves alone what is undetermined."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from preparations import compare, lines_of, poses_of
from rendered_photographs import write_fisheye

from data.io.child import run_apart
from data.prepare import colmap_tasks, mapping
from data.readers.colmap_files import load_tables

TRUE_LENS = [800.0, 530.0, 375.0, 0.05, -0.06]  # of 1024 x 768 pixels
SIMPLE_LENS = [803.0, 512.0, 384.0, 0.0]


def refined(report, n_images, n_points=300):
    """(model, parameters, mean error before and after) of a camera that starts with the simple model."""
    import pycolmap

    pycolmap.set_random_seed(1)
    options = pycolmap.SyntheticDatasetOptions(num_rigs=1, num_cameras_per_rig=1, camera_width=1024, camera_height=768)
    options.num_frames_per_rig, options.num_points3D = n_images, n_points
    options.camera_model_id, options.camera_params = pycolmap.CameraModelId.RADIAL, TRUE_LENS
    model = pycolmap.synthesize_dataset(options)
    for camera in model.cameras.values():
        camera.model, camera.params = pycolmap.CameraModelId.SIMPLE_RADIAL, SIMPLE_LENS
    model.update_point_3d_errors()
    before = model.compute_mean_reprojection_error()
    model = colmap_tasks.refine(model)
    (camera,) = model.cameras.values()
    return camera.model.name, list(camera.params), before, model.compute_mean_reprojection_error()


@pytest.mark.parametrize("n_images", [10, 20])
def test_the_lens_is_found(n_images, tmp_path):
    model, parameters, before, after = run_apart(refined, n_images, log=tmp_path / "log")
    assert model == colmap_tasks.REFINED_MODEL
    assert np.allclose(parameters, TRUE_LENS, rtol=1e-3, atol=1e-3)
    assert before > 5 > 0.01 > after


def test_a_lens_that_is_not_determined_keeps_the_simple_model(tmp_path):
    model, parameters, before, after = run_apart(refined, 3, 20, log=tmp_path / "log")
    assert model == colmap_tasks.CAMERA_MODEL
    assert parameters == SIMPLE_LENS and before == after


@pytest.mark.slow
def test_photographs_of_a_very_wide_lens_are_prepared(tmp_path):
    poses, focal = write_fisheye(tmp_path / "photos", colmap_tasks.LEAST_FISHEYE, degrees=170)
    lines_of(tmp_path)
    work = tmp_path / "scene" / "prepare"
    result = json.loads((work / "cameras.json").read_text())["result"]
    ((name, _, _, parameters),) = load_tables(None, str(work / "sparse" / result["folder"]), {}).cameras.values()
    assert name == colmap_tasks.FISHEYE_MODEL and np.allclose(parameters[:2], focal, rtol=0.01)
    assert len(result["names"]) == len(poses) and result["error"] < 0.3
    degrees, shares = compare(poses, poses_of(tmp_path / "scene"))
    assert degrees.max() < 0.2 and shares.max() < 0.005


@pytest.mark.parametrize(("change", "is_taken"), [(0.28, True), (-0.28, True), (0.45, False)])
def test_the_focal_length_of_a_fisheye_lens_may_differ_more(change, is_taken):
    params = [(1 - change) * 400.0] * 2 + [512.0, 384.0, 0.0, 0.0, 0.0, 0.0]
    camera = SimpleNamespace(width=1024, height=768, params=params)
    assert colmap_tasks.is_likely([400.0, 512.0, 384.0, -0.1], camera) == is_taken


@pytest.mark.parametrize(("index", "value"), [(0, 1100.0), (1, 700.0), (2, 200.0), (4, -1.5), (1, float("nan"))])
def test_an_unlikely_lens_is_not_taken(index, value):
    camera = SimpleNamespace(width=1024, height=768, params=list(TRUE_LENS))
    assert colmap_tasks.is_likely(SIMPLE_LENS, camera)
    camera.params[index] = value
    assert not colmap_tasks.is_likely(SIMPLE_LENS, camera)


@pytest.mark.parametrize(("found", "attempts"), [([0, 10], 2), ([5, 10], 2), ([9, 10], 1), ([5, 4], 2), ([0, 0], 2)])
def test_with_too_few_cameras_the_first_pair_may_lie_behind_each_other(found, attempts, tmp_path, monkeypatch):
    import pycolmap

    options = pycolmap.SyntheticDatasetOptions(num_rigs=1, num_cameras_per_rig=1, num_points3D=50)
    forward_motions = []

    def mapped(database, images, folder, options, **unused):
        forward_motions.append(options.mapper.init_max_forward_motion)
        count = found[len(forward_motions) - 1]
        return {0: models[count]} if count else {}

    models = {}
    for options.num_frames_per_rig in {*found} - {0}:
        models[options.num_frames_per_rig] = pycolmap.synthesize_dataset(options)
    monkeypatch.setattr(pycolmap, "incremental_mapping", mapped)
    monkeypatch.setattr(mapping, "known_images", lambda database: dict.fromkeys(map(str, range(10)), 1))
    monkeypatch.setattr(mapping, "read_pairs", lambda database: [])
    monkeypatch.setattr(mapping, "_leave_out_doubtful", lambda model, pairs: [])
    monkeypatch.setattr(pycolmap, "global_mapping", lambda *unused: {})
    result = mapping.reconstruct(print, "database", "images", str(tmp_path / "sparse"), 1)["models"]
    assert forward_motions == [0.95, 1.0][:attempts]
    most = max(found[:attempts])
    assert [len(model["names"]) for model in result] == [most] * bool(most)
    assert (tmp_path / "sparse" / "0").is_dir() == bool(most)
