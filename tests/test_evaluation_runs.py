"""`--mode evaluate` through the command line: what it scores against, what it writes, and what it refuses."""

import csv
import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from rigs import cloud, sphere_of_cameras, textured_scene
from runs import ROOT, run
from test_dtu import spoil_mask, write_reference

from models.plan import Decision, TrainingPlan
from models.requests import EvaluationRequest, MeshRequest
from models.results.experiment import Experiment
from models.results.references import read_references

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_figures")]

# Wide enough for the geometric initialisation to be a sphere; pictures of 25x25.
SETTINGS = ("train.end_iter=2", "train.warm_up_end=1", "model.sdf_network.d_hidden=128", "model.sdf_network.skip_in=[]")
SETTINGS = (*SETTINGS, "dataset.downscale=8")
LOW = ("--mode", "evaluate", "--resolution", "32")
NOTHING = (*SETTINGS, "dataset.reference_mesh=", "dataset.test_dir=")
TRUTH = trimesh.load(ROOT / "data/demo/ground_truth.ply", process=False)
SCALE, CENTRE = 2.5, np.array([4.0, -7.0, 1.5])  # scale_mat of the bundled scene


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two steps: still close to the sphere of radius 0.5 that it starts as."""
    folder = tmp_path_factory.mktemp("evaluated")
    assert run(folder, settings=(*SETTINGS, "train.val_freq=0", "train.val_mesh_freq=0")) == 0
    return folder


def figures(folder):
    return json.loads((folder / "report/metrics.json").read_text())


def in_world(points):
    return SCALE * points + CENTRE


def contents(folder):
    """What lies in the folder but its logs, with times."""
    files = [path for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def test_ground_truth_in_either_frame_gives_the_figures_of_the_conf(trained, tmp_path, capsys):
    TRUTH.export(tmp_path / "unit.ply")
    world = TRUTH.copy()
    world.vertices = in_world(world.vertices)
    world.export(tmp_path / "world.stl")
    found = []
    for flags in ("", f"--gt {tmp_path}/unit.ply --frame unit", f"--gt {tmp_path}/world.stl --tau 0.025"):
        # The length of the training is that of the newest checkpoint.
        settings = (*(NOTHING if flags else (*SETTINGS, "dataset.test_dir=")), "train.end_iter=300")
        assert run(trained, *LOW, *flags.split(), settings=settings) == 0
        found.append(figures(trained))
    for name in ("accuracy", "completeness", "chamfer", "f_score", "normal_consistency", "tau"):
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-4), name
        assert found[2][name] == pytest.approx(found[0][name], rel=1e-3), name
    assert all(each["conf"]["train.end_iter"] == 2 for each in found)
    assert "world.stl" in found[2]["ground_truth"] and found[0]["world_per_radius"] == pytest.approx(SCALE)
    shown = f"Chamfer distance: mean of both +{found[2]['chamfer']:.4f} radii = {SCALE * found[2]['chamfer']:.4g} world"
    assert re.search(shown, capsys.readouterr().out)


def test_points_alone_are_scored_in_radii_and_pixels(trained, tmp_path):
    points = TRUTH.sample(400, seed=0)
    far = np.random.default_rng(0).normal(size=(100, 3)) * [9, 9, 0.1]
    trimesh.PointCloud(in_world(np.concatenate([points, far]))).export(tmp_path / "sfm.ply")
    assert run(trained, *LOW, "--points", str(tmp_path / "sfm.ply"), settings=NOTHING) == 0
    found = figures(trained)
    assert found["psnr"] is None and found["chamfer"] is None
    assert 350 < found["points_scored"] < 420 and found["points_given"] == 500
    assert 0 < found["points_median"] < found["points_p90"] < 0.5 and 0 <= found["points_missing"] <= 1
    # focal length by distance
    assert found["points_median_px"] / found["points_median"] == pytest.approx(11.5, rel=0.2)


def test_the_dtu_protocol_is_scored_in_the_world(trained, tmp_path):
    folder = write_reference(tmp_path / "dtu", plane=(0.0, 0.0, 0.0, 1.0), res=20.0)
    surface = in_world(0.5 * trimesh.creation.icosphere(4).vertices)
    trimesh.PointCloud(surface).export(folder / "Points/stl/stl007_total.ply")
    spoil_mask(folder, ObsMask=np.ones((9, 9, 9)), BB=np.array([CENTRE - 4, CENTRE + 4]))
    flags = ("--protocol", "dtu", "--dtu", str(folder), "--scan", "7")
    assert run(trained, *LOW, *flags, settings=NOTHING) == 0
    found = figures(trained)
    assert found["dtu_scan"] == 7 and 0 < found["dtu_chamfer"] < 0.5  # mm, which are the world's units


def test_every_evaluation_is_a_row_of_a_table_that_may_be_shared(trained, tmp_path):
    table = tmp_path / "tables/all.csv"
    for resolution in ("24", "32"):
        flags = ("--resolution", resolution, "--csv", str(table))
        assert run(trained, "--mode", "evaluate", *flags, settings=SETTINGS) == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["resolution"] for row in rows] == ["24", "32"] and rows[0]["experiment"] == str(trained)
    assert float(rows[1]["psnr"]) == figures(trained)["psnr"] and rows[0]["dtu_chamfer"] == ""


def test_figures_of_views_and_the_conf_and_no_mesh_is_replaced(trained):
    assert run(trained, "--mode", "validate_mesh", "--resolution", "24", settings=SETTINGS) == 0
    before, table = (trained / "meshes/00000002.ply").read_bytes(), trained / "report/metrics.csv"
    rows = table.read_text().count("\n") if table.exists() else 1
    assert run(trained, *LOW, settings=SETTINGS) == 0
    found = figures(trained)
    assert found["conf"]["train.end_iter"] == 2 and found["conf"]["model.sdf_network.d_hidden"] == 128
    assert len(found["views"]) == found["test_photographs"] == 4 and table.read_text().count("\n") == rows + 1
    assert (trained / "meshes/00000002.ply").read_bytes() == before
    rgb = trimesh.load(trained / "report/mesh.ply", process=False).visual.vertex_colors[:, :3]  # the colour network's
    assert len(np.unique(rgb, axis=0)) > 1


FAR = np.random.default_rng(0).normal(size=(50, 3)) + 900
OTHER = trimesh.Trimesh(in_world(TRUTH.vertices * 0.2 + 0.4), TRUTH.faces)
OTHER_FRAME = "another frame or scale than the scene"
# What is given, with {} for a folder; the files there; what is told.
REFUSED = [
    ("--gt {}/gt.ply --frame unit", {"gt.ply": OTHER.export(file_type="ply")}, OTHER_FRAME),
    ("--points {}/p.ply", {"p.ply": trimesh.PointCloud(FAR).export(file_type="ply")}, OTHER_FRAME),
    ("--csv {}/my.csv", {"my.csv": b"experiment,weight\na,3\n"}, "is not a table of metrics of this program"),
    ("--protocol dtu", {}, "must be given together"),
    ("--tau 0", {}, "must be greater than 0"),
    ("", {}, "--gt FILE or --points FILE"),  # nothing to compare with
]


@pytest.mark.parametrize(("flags", "files", "words"), REFUSED)
def test_what_cannot_be_scored_is_one_sentence_and_nothing_written(flags, files, words, trained, tmp_path, capsys):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    before = contents(trained), contents(tmp_path)
    assert run(trained, *LOW, *flags.replace("{}", str(tmp_path)).split(), settings=SETTINGS if flags else NOTHING) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("error: ") == 1 and (contents(trained), contents(tmp_path)) == before


def test_points_that_a_kind_trained_on_are_not_scored(trained, tmp_path, monkeypatch):
    """One that says so has them left out."""
    points = np.random.default_rng(1).normal(size=(300, 3))
    points *= 0.5 / np.linalg.norm(points, axis=1, keepdims=True)
    scene = textured_scene(sphere_of_cameras(6, middle=np.zeros(3)), masks=False)
    scene = dataclasses.replace(scene, points=cloud(points[:200]))
    monkeypatch.setattr("models.results.references.held_out_scene", lambda experiment, group: scene)
    trimesh.PointCloud(points).export(tmp_path / "p.ply")

    def references(trains, **asked):
        plan = TrainingPlan(points=Decision("given" if trains else "none"))
        monkeypatch.setattr("models.results.references.plan_of", lambda experiment: plan)
        conf = SimpleNamespace(dataset=SimpleNamespace(reference_mesh=""))
        return read_references(Experiment(conf, tmp_path, scene, None), EvaluationRequest(MeshRequest(2), **asked))

    assert references(False).sfm_points.given == 200 and references(False).notes == ()
    alone = references(True)
    assert alone.sfm_points.given == 25 and "175 points were used in training" in alone.notes[0]
    assert np.abs(alone.sfm_points.xyz - points[:200:8]).max() < 1e-6
    new = references(True, points=tmp_path / "p.ply", frame="unit")
    assert new.sfm_points.given == 125 and "175 points" in new.notes[0]
