"""inspect --compare: registration, signs, figures, units and refusals, on a part with known deviations."""

import json

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation
from synthetic_scene import write_scene

from data.errors import UserError
from data.io.images import read_image
from data.parsed_scene import WorldFrame
from exp_runner import main
from models.requests import DeviationRequest
from models.results.deviation import OUTPUTS, compare, registered, signed_distances

METRIC = WorldFrame("the floor", "4 markers of 0.03 m", 0.002)


def part():
    """A closed part without symmetry, 60 mm long: a box whose top rises to a corner."""
    box = trimesh.creation.box((60.0, 40.0, 25.0)).subdivide_to_size(3.0)
    x, y, z = box.vertices.T
    box.vertices[:, 2] = np.where(z > 0, z * (1 + 0.4 * np.exp(-((x - 15) ** 2 + (y - 8) ** 2) / 60)), z)
    return box


def scanned(model):
    """The part in metres, turned and moved, 0.3 mm too large in the direction of the normals, without half of its
    underside."""
    normals = np.asarray(model.vertex_normals)
    grown = trimesh.Trimesh(model.vertices + 0.3 * normals, model.faces, process=False)
    x, _, z = grown.triangles_center.T
    grown.update_faces(~((z < -12) & (grown.face_normals[:, 2] < -0.9) & (x < 0)))
    motion = np.eye(4)
    motion[:3, :3], motion[:3, 3] = Rotation.from_euler("xyz", (100, 40, -60), degrees=True).as_matrix(), (0.4, -2, 1)
    return grown.apply_scale(1e-3).apply_transform(motion)


def test_a_turned_scan_is_registered_and_its_excess_is_measured_in_millimetres(tmp_path):
    model = part()
    model.export(tmp_path / "cad.stl")
    model.copy().apply_scale(1e-3).export(tmp_path / "metres.ply")
    scanned(model).export(tmp_path / "mesh.ply")
    found = compare(DeviationRequest(tmp_path / "cad.stl", tolerance=0.2), tmp_path / "mesh.ply", METRIC, tmp_path)
    assert found.unit == "mm" and found.mean == pytest.approx(0.3, abs=0.05) and found.rms < 0.36
    assert found.within < 0.2 and 0.0 <= found.covered < 0.2
    assert found.scale_error == pytest.approx(0.002 * np.linalg.norm(model.extents))
    assert f"the scale is known to ± {found.scale_error:.2g} mm over its extent" in found.lines()[0]
    wide = compare(DeviationRequest(tmp_path / "metres.ply", tolerance=0.5), tmp_path / "mesh.ply", METRIC, tmp_path)
    underside = 30 * 40 / model.area
    assert wide.within > 0.98 and wide.covered == pytest.approx(1 - underside, abs=0.05)
    assert read_image(tmp_path / OUTPUTS[1]).shape == (420, 1260, 3)
    colored = trimesh.load(tmp_path / OUTPUTS[0], process=False)
    red, _, blue = np.median(colored.visual.vertex_colors[:, :3], axis=0)
    assert red > blue and np.allclose(np.sort(colored.extents), np.sort(model.extents), atol=1.5)
    stored = json.loads((tmp_path / OUTPUTS[2]).read_text())
    moved = np.array(stored["mesh_to_reference"])
    assert np.allclose(moved[:3, :3] @ moved[:3, :3].T, np.eye(3), atol=1e-9) and stored["rms"] == wide.rms


def test_distances_are_negative_inside_also_of_a_reference_that_faces_inwards():
    ball = trimesh.creation.icosphere(4, 2.0)
    points = np.array([[0, 0, 1.0], [0, 3.0, 0], [0.5, 0, 0]])
    for one in (ball, trimesh.Trimesh(ball.vertices, ball.faces[:, ::-1], process=False)):
        assert signed_distances(points, one) == pytest.approx([-1.0, 1.0, -1.5], abs=0.01)


@pytest.mark.parametrize("seed", range(2))
def test_registration_undoes_any_rotation(seed):
    model, turn = part(), np.eye(4)
    turn[:3, :3], turn[:3, 3] = Rotation.random(random_state=seed).as_matrix(), (500, -20, 3)
    found = registered(model.copy().apply_transform(turn), model)
    assert np.abs(found @ turn - np.eye(4))[:3, :3].max() < 2e-3


def refused(folder, frame=METRIC, **options):
    with pytest.raises(UserError) as error:
        compare(DeviationRequest(folder / "cad.ply", **options), folder / "mesh.ply", frame, folder)
    return str(error.value)


def test_what_cannot_be_compared_is_refused_with_the_way_out(tmp_path):
    model = part()
    model.export(tmp_path / "cad.ply")
    scanned(model).export(tmp_path / "mesh.ply")
    assert "--marker or --scale" in refused(tmp_path, frame=None)
    assert "leave --in_place out" in refused(tmp_path, in_place=True)
    trimesh.creation.cylinder(2.0, 150.0).export(tmp_path / "cad.ply")
    assert "do not show one object; remove what surrounds" in refused(tmp_path)
    (tmp_path / "cad.ply").unlink()
    assert "no such mesh file" in refused(tmp_path)
    assert not any((tmp_path / name).exists() for name in OUTPUTS)


def test_a_scene_without_scale_is_compared_in_place_through_the_command_line(tmp_path, capsys):
    write_scene(tmp_path / "scene", n_views=4)
    ball = trimesh.creation.icosphere(3, 0.5)
    ball.export(tmp_path / "earlier.ply")
    ball.apply_scale(1.02).export(tmp_path / "mesh.ply")
    words = ["--set", f"dataset.data_dir={tmp_path / 'scene'}", "--set", f"general.base_exp_dir={tmp_path / 'out'}"]
    words += ["--mode", "inspect", "--compare", str(tmp_path / "earlier.ply"), "--in_place", "--tolerance", "0.02"]
    assert main([*words, "--mesh", str(tmp_path / "mesh.ply")]) == 0
    said = capsys.readouterr().out
    assert "mean +0.00996, RMS 0.00996, 90 % below 0.00996 units of the scene" in said and "within ± 0.02" in said
    assert sorted(path.name for path in (tmp_path / "out/inspect").iterdir()) == sorted(OUTPUTS)
    assert main(words) == 2 and "mesh.ply: no such mesh file" in capsys.readouterr().err
    assert main([*words, "--measure", "0 0 0, 1 0 0"]) == 2
    assert "--compare, --measure: give only one of them" in capsys.readouterr().err
    assert main([*words, "--frame", "unit"]) == 2
    assert "--compare: lengths are those of the world frame; leave --frame unit out" in capsys.readouterr().err
    assert main([*words[:6], "--in_place", "--tolerance", "1"]) == 2
    assert "--in_place, --tolerance: needs --compare FILE" in capsys.readouterr().err


def test_a_reference_far_from_the_origin_is_refused_without_warnings(tmp_path, recwarn):
    part().export(tmp_path / "mesh.ply")
    part().apply_translation([1e9, 5e8, 0]).export(tmp_path / "cad.ply")
    assert "do not show one object" in refused(tmp_path, WorldFrame(""), in_place=True) and not recwarn.list
