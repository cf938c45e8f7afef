"""The incremental and the global mapper on synthetic matches, and cameras that do not agree with the matches."""

import contextlib
import json
from dataclasses import asdict

import numpy as np
import pytest

from data.io.files import write_result
from data.parsed_scene import WorldFrame
from data.prepare import mapping
from data.readers.neus import FRAME_FILE, read_frame
from models.commands.reconstruction_page import page, trust

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
    found = mapping.reconstruct(events.append, database[0], str(tmp_path), str(tmp_path / "sparse"), 1)
    assert found["tried"] == {mapping.INCREMENTAL: HALF, mapping.GLOBAL: 2 * HALF}
    assert found["mapper"] == mapping.GLOBAL and not found["doubtful"]
    (model,) = found["models"]
    assert len(model["names"]) == 2 * HALF and model["error"] < 0.1
    true, written = database[1], pycolmap.Reconstruction(str(tmp_path / "sparse" / model["folder"]))
    found = pycolmap.align_reconstructions_via_proj_centers(written, true, 0.05)
    assert found is not None and events.count("start") == 3


def test_a_camera_that_contradicts_its_matches_is_left_out(database):
    path, true = database
    pairs = mapping.read_pairs(path)
    exact = mapping.agreement(true, pairs)
    assert len(exact) == len(pairs) and all(exact[pair.names] == len(pair.pixels[0]) for pair in pairs)
    wrong = true.images[3]
    turn = pycolmap.Rigid3d(pycolmap.Rotation3d(np.array([0.0, 0.3, 0.0])), np.zeros(3))
    true.frames[wrong.frame_id].rig_from_world = turn * wrong.cam_from_world()
    assert mapping._leave_out_doubtful(true, pairs) == [wrong.name]
    assert not wrong.has_pose and true.num_reg_images() == 2 * HALF - 1


def test_photographs_without_a_camera_are_named_in_the_verdict(tmp_path):
    frame = WorldFrame("", photographs={"000.png": "a.jpg"}, without_camera=("b.jpg",))
    write_result(tmp_path / FRAME_FILE, json.dumps(asdict(frame)).encode())
    assert read_frame(tmp_path / FRAME_FILE) == frame
    assert frame.left_out == "1 of 2 photographs have no camera: b.jpg"
    assert trust({"points_missing": 0.0}, frame)[0].startswith(frame.left_out)
    assert "have no camera: b.jpg" in page("title", {}, {}, (), frame=frame)
