"""Mappers on synthetic matches, cameras that do not agree with the matches, and the lens of the last adjustment."""

import contextlib
import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from preparations import compare, lines_of, poses_of
from rendered_photographs import write_fisheye, write_near_and_far

from data.io.child import run_apart
from data.io.files import write_result
from data.parsed_scene import WorldFrame
from data.prepare.sfm import colmap_tasks, joining, mapping, stages
from data.scenes.readers.colmap import read_cameras
from data.scenes.readers.neus import FRAME_FILE, read_frame
from models.results.report.reconstruction import page, trust

pycolmap = pytest.importorskip("pycolmap")
HALF, COMMON = 8, 20  # images of a half, matches of each pair between the halves


@pytest.fixture
def database(tmp_path):
    """Exact matches of two halves of a set of images, with few between them; the true model beside it."""
    pycolmap.set_random_seed(0)
    options = pycolmap.SyntheticDatasetOptions(
        num_rigs=1, num_cameras_per_rig=1, num_frames_per_rig=2 * HALF, num_points3D=300
    )
    options.camera_has_prior_focal_length = True
    path = str(tmp_path / "matches.db")
    with contextlib.closing(pycolmap.Database.open(path)) as opened:
        true = pycolmap.synthesize_dataset(options, opened)
        for pair, geometry in zip(*opened.read_two_view_geometries(), strict=True):
            images = pycolmap.pair_id_to_image_pair(pair)
            if (images[0] <= HALF) == (images[1] <= HALF):
                continue
            opened.delete_matches(*images)
            opened.delete_two_view_geometry(*images)
            if images[1] - images[0] == HALF:
                geometry.inlier_matches = np.asarray(geometry.inlier_matches)[:COMMON]
                opened.write_two_view_geometry(*images, geometry)
    return path, true


def test_halves_with_few_common_matches_become_one_model(database, tmp_path):
    events = []
    found = mapping.reconstruct(events.append, database[0], str(tmp_path), str(tmp_path / "sparse"), 1, {}, False)
    assert found.image_counts == {mapping.INCREMENTAL: HALF, mapping.GLOBAL: 2 * HALF}
    assert found.mapper == mapping.GLOBAL and not found.disagreeing
    (model,) = found.models
    assert len(model["names"]) == 2 * HALF and model["error"] < 0.1
    true, written = database[1], pycolmap.Reconstruction(str(tmp_path / "sparse" / model["folder"]))
    found = pycolmap.align_reconstructions_via_proj_centers(written, true, 0.05)
    assert found is not None and events.count("start") == 3


def accuracy(model, true):
    """The largest distance of cameras from the true ones, relative to that between the true ones."""
    move = pycolmap.align_reconstructions_via_proj_centers(model, true, 0.05)
    at = {image.name: image.projection_center() for image in true.images.values()}
    found = {image.name: move * image.projection_center() for image in model.images.values()}
    return max(np.linalg.norm(found[name] - at[name]) for name in found) / np.ptp(list(at.values()), axis=0).max()


def test_models_that_the_global_mapper_does_not_unite_are_joined(database, tmp_path, monkeypatch):
    monkeypatch.setattr(mapping, "_global", lambda *given: {})
    found = mapping.reconstruct(lambda event: None, database[0], str(tmp_path), str(tmp_path / "sparse"), 1, {}, False)
    assert found.mapper == mapping.JOINED and found.image_counts[mapping.JOINED] == 2 * HALF
    assert len(found.models[0]["names"]) == 2 * HALF and not found.disagreeing
    written = pycolmap.Reconstruction(str(tmp_path / "sparse" / found.models[0]["folder"]))
    assert accuracy(written, database[1]) < 1e-3


def test_models_that_share_photographs_are_joined_and_others_are_not(database, tmp_path):
    path, true = database
    parts = []
    for own, size in ((range(9, 14), 3.0), (range(1, 8), 1.0), (range(6, 11), 0.5)):  # the last meets both
        part = pycolmap.Reconstruction(true)
        for frame in [frame for frame in part.frames if frame not in own]:
            part.deregister_frame(frame)
        part.transform(pycolmap.Sim3d(size, pycolmap.Rotation3d(np.array([0.0, size, 0.0])), np.ones(3)))
        parts.append(part)
    whole = joining.joined(parts, [], path, str(tmp_path), 1, False)
    assert whole.num_reg_images() == 13 and accuracy(whole, true) < 1e-3
    assert joining.joined(parts[:2], [], path, str(tmp_path), 1, False) is None


def test_photographs_without_a_camera_are_tried_with_more_features(tmp_path):
    poses = write_near_and_far(tmp_path / "photos", 6, 3)
    lines = lines_of(tmp_path)
    assert any("more features and pairs gave cameras of 3 more photographs" in line for line in lines), lines
    degrees, shares = compare(poses, poses_of(tmp_path / "scene"))
    assert degrees.max() < 0.5 and shares.max() < 0.02
    assert not (tmp_path / "scene" / "prepare" / "more").exists()


@pytest.mark.parametrize("moments", [(0.0,), (math.inf, math.inf, 0.0)], ids=["begun", "ended"])
def test_more_features_are_left_out_if_the_time_is_over(moments, tmp_path, monkeypatch):
    write_near_and_far(tmp_path / "photos", 6, 3)
    left = iter(moments)
    monkeypatch.setattr(stages, "seconds_left", lambda: next(left, -1.0) or -1.0)
    lines = lines_of(tmp_path)
    assert any("more features of 3 photographs without a camera were not tried" in line for line in lines), lines
    assert "cameras of 6 of 9 photographs" in "".join(lines)
    assert not (tmp_path / "scene" / "prepare" / "more").exists()


def test_with_too_few_cameras_the_first_pair_may_lie_behind_each_other(monkeypatch):
    found = iter({0: SimpleNamespace(num_reg_images=lambda count=count: count)} for count in (5, 10))
    monkeypatch.setattr(pycolmap, "incremental_mapping", lambda *given, **options: next(found))
    assert mapping.most_images(mapping._incremental(print, "database", "images", 1, 9, False)) == 10


def test_a_camera_that_contradicts_its_matches_is_left_out(database):
    path, true = database
    pairs = mapping.read_pairs(path)
    exact = mapping.agreement(true, pairs)
    assert len(exact) == len(pairs) and all(exact[pair.names] == len(pair.pixels[0]) for pair in pairs)
    wrong = true.images[3]
    turn = pycolmap.Rigid3d(pycolmap.Rotation3d(np.array([0.0, 0.3, 0.0])), np.zeros(3))
    true.frames[wrong.frame_id].rig_from_world = turn * wrong.cam_from_world()
    assert mapping._leave_out_disagreeing(true, mapping._judged({0: true}, pairs).agreeing) == [wrong.name]
    assert not wrong.has_pose and true.num_reg_images() == 2 * HALF - 1
    crossed = [replace(pair, pixels=(pair.pixels[0], pair.pixels[1][::-1].copy())) for pair in pairs]
    assert mapping._leave_out_disagreeing(true, mapping._judged({0: true}, crossed).agreeing) == []


@pytest.mark.parametrize(("count", "shift", "is_used"), [(29, 0.0, True), (29, 1.5, False), (14, 0.0, False)])
def test_a_camera_that_few_points_hold_is_doubtful_or_left_out(database, count, shift, is_used):
    path, true = database
    image = true.images[3]
    assert mapping.described_model("0", true)["weak"] == []
    for other in true.images.values():
        for point in other.points2D:
            point.xy = point.xy + [0.5, 0.0]
    for index in image.get_observation_point2D_idxs()[count:]:
        true.delete_observation(3, index)
    for point in image.points2D:
        point.xy = point.xy + [shift, 0.0]
    assert mapping.described_model("0", true)["weak"] == [image.name]
    judged = mapping._judged({0: true}, mapping.read_pairs(path))
    assert (image.name in judged.agreeing) == is_used
    assert any(image.name in pair for pair in judged.links) == is_used
    assert mapping._leave_out_disagreeing(true, judged.agreeing) == ([] if is_used else [image.name])


def test_photographs_without_a_camera_are_named_in_the_verdict(tmp_path):
    frame = WorldFrame("", photographs={"000.png": "a.jpg"}, without_camera=("b.jpg",))
    write_result(tmp_path / FRAME_FILE, json.dumps(asdict(frame)).encode())
    assert read_frame(tmp_path / FRAME_FILE) == frame
    assert frame.left_out == "1 of 2 photographs have no camera: b.jpg"
    assert trust({"points_missing": 0.0}, frame)[0].startswith(frame.left_out)
    assert "have no camera: b.jpg" in page("title", {}, {}, (), frame=frame)


TRUE_LENS = [800.0, 530.0, 375.0, 0.05, -0.06]  # of 1024 x 768 pixels
SIMPLE_LENS = [803.0, 512.0, 384.0, 0.0]


def refined(report, n_images, n_points=300, wrong=0.0, left_out=0):
    """(model, parameters, mean error before and after) of a camera that starts with the simple model.

    wrong: the fraction of the pixels that lie up to 3 pixels lower than they should; left_out: images without a pose.
    """
    pycolmap.set_random_seed(1)
    options = pycolmap.SyntheticDatasetOptions(num_rigs=1, num_cameras_per_rig=1, camera_width=1024, camera_height=768)
    options.num_frames_per_rig, options.num_points3D = n_images, n_points
    options.camera_model_id, options.camera_params = pycolmap.CameraModelId.RADIAL, TRUE_LENS
    model = pycolmap.synthesize_dataset(options)
    rng = np.random.default_rng(0)
    for image in model.images.values():
        for seen in image.points2D:
            seen.xy = seen.xy + rng.normal(0, 0.1, 2) * bool(wrong) + [0, 3 * rng.random() * (rng.random() < wrong)]
    for frame in list(model.frames)[:left_out]:
        model.deregister_frame(frame)
    for camera in model.cameras.values():
        camera.model, camera.params = pycolmap.CameraModelId.SIMPLE_RADIAL, SIMPLE_LENS
    model.update_point_3d_errors()
    before = model.compute_mean_reprojection_error()
    model = colmap_tasks.refine(model)
    (camera,) = model.cameras.values()
    return camera.model.name, list(camera.params), before, model.compute_mean_reprojection_error()


@pytest.mark.parametrize(("n_images", "left_out"), [(10, 0), (20, 0), (10, 1)])
def test_the_lens_is_found(n_images, left_out, tmp_path):
    model, parameters, before, after = run_apart(refined, n_images, 300, 0.0, left_out, log=tmp_path / "log")
    assert model == colmap_tasks.REFINED_MODEL
    assert np.allclose(parameters, TRUE_LENS, rtol=1e-3, atol=1e-3)
    assert before > 5 > 0.01 > after


def test_wrong_matches_hardly_change_the_lens(tmp_path):
    model, parameters, _, after = run_apart(refined, 10, 300, 0.2, log=tmp_path / "log")
    assert model == colmap_tasks.REFINED_MODEL and after > 0.2
    assert np.abs(np.subtract(parameters, TRUE_LENS)[:3]).max() < 0.5  # pixels: 0.32 here, 1.2 by least squares


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
    (camera,) = read_cameras(work / "sparse" / result["folder"] / "cameras.bin")
    name, parameters = camera.model, camera.parameters
    assert name == colmap_tasks.FISHEYE_MODEL and np.allclose(parameters[:2], focal, rtol=0.01)
    assert len(result["names"]) == len(poses) and result["error"] < 0.3
    degrees, shares = compare(poses, poses_of(tmp_path / "scene"))
    assert degrees.max() < 0.2 and shares.max() < 0.005


@pytest.mark.parametrize(("index", "value"), [(0, 1100.0), (1, 700.0), (2, 200.0), (4, -1.5), (1, float("nan"))])
def test_an_unlikely_lens_is_not_taken(index, value):
    camera = SimpleNamespace(width=1024, height=768, params=list(TRUE_LENS))
    assert colmap_tasks.is_likely(SIMPLE_LENS, camera)
    camera.params[index] = value
    assert not colmap_tasks.is_likely(SIMPLE_LENS, camera)
    for change, is_taken in ((0.28, True), (-0.28, True), (0.45, False)):  # of a fisheye lens more
        camera.params = [(1 - change) * 400.0] * 2 + [512.0, 384.0, 0.0, 0.0, 0.0, 0.0]
        assert colmap_tasks.is_likely([400.0, 512.0, 384.0, -0.1], camera) == is_taken
