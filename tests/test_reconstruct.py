"""`--mode reconstruct`: one call from photographs to a mesh, which goes on where it stopped and says what is amiss."""

import json
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import rendered_photographs
import trimesh
from synthetic_scene import dataset_config
from test_guard import spoil_gradients
from test_neus_writer import scene as any_scene

import exp_runner
from data.errors import UserError
from data.io.images import write_image
from data.parsed_scene import WorldFrame
from data.scenes.readers.neus import write_neus_scene
from models.commands import functions, interface, reconstruction_plan
from models.commands.arguments import parse_arguments
from models.commands.reconstruction_plan import LEAST_DOUBLING_GAIN, ReconstructionPlan, longer
from models.conf import load_config
from models.config.program import FAST, PROGRAM_FOLDER
from models.requests import MeshRequest
from models.results.references import NoReferencesError
from models.results.report import reconstruction as reconstruction_page
from models.results.report.document import read_page
from models.results.report.reconstruction import size_and_cameras
from models.runs import measured
from models.runs.stops import Interrupted

SMALL = ("train.batch_size=64", "model.packed.samples=512", "model.packed.cells=16")
SMALL += ("model.sdf_grid.levels=2", "model.sdf_grid.finest=32", "model.sdf_grid.log2_rows=10")
SMALL += ("model.color_grid.levels=1", "model.color_grid.log2_rows=10")
FAST = PROGRAM_FOLDER / FAST
FOLDER = Path("exp/my_photos/fast")
RESULT = FOLDER / "result"
RESULTS = (
    "cover.png",
    "health.json",
    "health.md",
    "mesh.ply",
    "metrics.json",
    "overview.png",
    "report.png",
    "result.html",
    "result.md",
)


def run(capsys, *arguments):
    flags = [flag for setting in SMALL for flag in ("--set", setting)]
    status = exp_runner.main(["--mode", "reconstruct", "--resolution", "24", *flags, *map(str, arguments)])
    return status, capsys.readouterr()


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Six photographs of the corner in ./my photos; trials and trainings are of a few steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measured, "COMPILED_STEPS", 2)
    monkeypatch.setattr(measured, "MOST_TIMED_STEPS", 4)
    monkeypatch.setattr(reconstruction_plan, "LEAST_STEPS", 6)
    rendered_photographs.write_photographs(tmp_path / "my photos", 6)
    return tmp_path / "my photos"


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
def test_one_call_gives_a_mesh_and_a_stopped_one_goes_on(photographs, capsys, monkeypatch):
    call = ("--images", photographs, "--minutes", 1e-4)
    with monkeypatch.context() as stopped:
        stopped.setattr(functions, "train", Mock(side_effect=Interrupted(signal.SIGINT, 0)))
        status, said = run(capsys, *call)
    assert status == 130 and "repeat the command to continue" in said.out
    assert "--minutes 0.0001 is too short: " in said.out and "the whole command will take about" in said.out
    assert said.out.index("before the training: views (bad): 6; so few") < said.out.index("step 3 of 5")
    plan = json.loads((FOLDER / "reconstruct.json").read_text())
    steps = int(plan["settings"]["train.end_iter"])
    assert steps >= 6 and plan["seconds_per_step"] > 0

    monkeypatch.setattr(measured, "measured_pace", lambda *given: pytest.fail("measured again"))
    status, said = run(capsys, *call)
    assert status == 0, said.err
    text, kept = (RESULT / "result.md").read_text(), (RESULT / "mesh.ply").read_bytes()
    assert sorted(path.name for path in RESULT.iterdir()) == sorted(RESULTS)
    assert kept.count(b"property uchar red") == 1 and "## Reliability" in text and "| mapping |" in text
    assert "--clean views" in said.out.split("step 4 of 5")[1].splitlines()[0], "a made-up back is no result"
    assert "--clean views" in text
    assert "--mesh " in said.out.split("step 5 of 5")[1].splitlines()[0]
    delivered = len(trimesh.load(RESULT / "mesh.ply", process=False).faces)
    assert json.loads((RESULT / "metrics.json").read_text())["triangles"] == delivered, "one mesh"
    assert read_page(FOLDER / "report.html")["mesh"]["whole"] == delivered
    (RESULT / "mesh.ply").unlink()
    _, further, again, _, last = text.split("```bash\n")[1].split("\n```")[0].splitlines()
    assert exp_runner.main(shlex.split(last)[2:]) == 0 and (RESULT / "mesh.ply").read_bytes() == kept, last
    assert f"train.end_iter={2 * steps}" in further and "--mode train --is_continue" in further
    assert "--mode reconstruct" in again and "train.end_iter" not in again and "--overwrite" not in again
    capsys.readouterr()
    phases = json.loads((RESULT / "metrics.json").read_text())["phases"]
    assert all(phases[name]["wall"] > 0 for name in ("mapping", "measuring", "training")), "of the stopped call too"
    assert "reliability: " in said.out and "next: " not in said.out, "it does the steps itself"
    status, said = run(capsys, *call)
    assert status == 0 and "was already complete" in said.out
    assert "step 3" not in said.out and "details: " not in said.out


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
def test_the_function_prints_nothing_and_goes_on_with_what_the_command_began(photographs, capfd, monkeypatch):
    """The same results as the command's, which finds them complete; mistakes are the command's sentences."""
    monkeypatch.setattr("sys.argv", ["x", "--mode", "nonsense"])
    for options, words in (
        ({"minutes": 0}, "--minutes 0: must be above 0"),
        ({"minutes": "long"}, "--minutes long: must be above 0"),
        ({"mesh": MeshRequest(24, output=Path("a.ply"))}, "--output: --mode reconstruct writes result/mesh.ply"),
    ):
        with pytest.raises(UserError, match=words):
            interface.reconstruct(photographs, **options)
    mesh, keys = replace(interface.DELIVERED, resolution=24), (*SMALL, "train.end_iter=8")
    seen = Mock(spec=interface.Callback)
    seen.name = "losses"
    given = {"minutes": 1e-4, "overrides": keys, "mesh": mesh, "callbacks": [seen]}
    with monkeypatch.context() as stopped, pytest.raises(Interrupted):
        stopped.setattr(functions, "train", Mock(side_effect=Interrupted(signal.SIGINT, 0)))
        interface.reconstruct(photographs, **given)
    told = []
    with interface.telling(told.append):
        found = interface.reconstruct(photographs, **given)
    assert (found.folder, found.mesh, found.notes) == (RESULT, RESULT / "mesh.ply", ()) and seen.after_step.called
    assert found.metrics == json.loads((RESULT / "metrics.json").read_text()) and found.metrics["triangles"] > 0
    assert any(line.startswith("step 3 of 5: python ") and "--mode train --is_continue" in line for line in told)
    assert capfd.readouterr() == ("", "")
    again = interface.reconstruct(photographs, **given)
    assert again == found and capfd.readouterr() == ("", "")
    status, said = run(capfd, "--images", photographs, "--minutes", 1e-4, "--set", "train.end_iter=8")
    assert status == 0 and "was already complete" in said.out
    kept = (RESULT / "mesh.ply").read_bytes()
    assert run(capfd, "--images", photographs, "--minutes", 1e-4, "--set", "train.end_iter=8", "--overwrite")[0] == 0
    assert (RESULT / "mesh.ply").read_bytes() == kept, "the same from the command line"


@pytest.mark.slow
def test_a_mistake_is_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags, words in (
        ([], "--mode reconstruct: give --images FOLDER"),
        (["--images", "x", "--minutes", "0"], "--minutes 0: must be above 0"),
        (["--images", "x", "--output", "a.ply"], "--output: --mode reconstruct writes result/mesh.ply"),
        (["--images", "/"], "pass --case NAME"),
    ):
        status, said = run(capsys, *flags)
        assert status == exp_runner.EXIT_USER_ERROR and words in said.err
        assert said.err.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_views_are_held_out_unless_flags_or_conf_choose_them(tmp_path):
    (tmp_path / "image").mkdir()
    for view in range(57):
        write_image(tmp_path / "image" / f"{view:03d}.png", np.zeros((4, 4, 3), np.uint8))
    place, chosen = f"dataset.data_dir={tmp_path}", "dataset.train_views=[0,1,2]"
    typed = ["--mode", "reconstruct", "--images", str(tmp_path), "--case", "a", "--conf", str(FAST), "--set", place]
    for flags, in_conf, expected in (((), (), "8"), (("--set", chosen), (chosen,), None), ((), (chosen,), None)):
        conf = load_config(FAST, "a", (place, *in_conf))
        found = reconstruction_plan.chosen_settings(parse_arguments([*typed, *flags]), conf, 10.0)
        assert found.get("dataset.test_every") == expected
        assert found.get("dataset.validation_views") == (expected and "[8, 24, 40, 56]")
    (tmp_path / "image" / "056.png").unlink()  # seven photographs are too few for two groups
    found = reconstruction_plan.chosen_settings(parse_arguments(typed), load_config(FAST, "a", (place,)), 10.0)
    assert found == {"dataset.test_every": "8"}


@pytest.mark.slow
def test_only_an_evaluation_without_references_may_fail(photographs, capsys, monkeypatch):
    refusal = Mock(side_effect=[UserError("exp: no space is left"), NoReferencesError("has no test photographs")])
    monkeypatch.setattr(functions, "evaluate", refusal)
    call = ("--images", photographs, "--set", "train.end_iter=7", "--minutes", 1e-4)
    status, said = run(capsys, *call)
    assert status == 2 and "no space is left" in said.err and "no metrics" not in said.out
    status, said = run(capsys, *call)
    assert status == 0 and "no metrics: has no test photographs" in said.out, said.err
    assert (RESULT / "mesh.ply").is_file() and "could not be measured" in (RESULT / "result.md").read_text()


def test_figures_say_how_far_to_trust_a_result():
    for figures, words in (
        ({"points_missing": 0.7}, "only 30% of the SfM points"),
        ({"points_missing": 0.3}, "parts of the mesh are wrong"),
        ({"points_missing": 0.5, "points_scored": 4}, "only 4 SfM points are on the object, too few to test it"),
        ({"points_missing": 0.5, "points_scored": 40}, "parts of the mesh are wrong"),
        ({"points_missing": 0.01}, "which part of the mesh they test is not known"),
        ({"psnr": 12.0}, "the views are not consistent with one shape"),
        ({"psnr": 12.0, "psnr_mask": 30.0, "counts_first": "psnr_mask"}, "30.0 dB, which does not verify depth"),
        ({"epipolar_px": 9.0}, "the cameras are wrong"),
    ):
        assert words in reconstruction_page.trust(figures)[0]


@pytest.mark.slow
def test_a_training_that_fails_leaves_what_there_is_and_goes_on(photographs, capsys, monkeypatch):
    def call(first_bad):
        with monkeypatch.context() as broken:
            spoil_gradients(broken, set(range(first_bad, 100)), 0)
            given = ("train.end_iter=12", "train.max_bad_steps=2", "train.save_freq=4")
            status, said = run(capsys, "--images", photographs, *(f"--set={text}" for text in given))
        return status, said.out, said.err, (RESULT / "result.md").read_text()

    status, _, err, text = call(0)
    assert status == 1 and "NaN or Inf in the gradient of" in err
    assert "stopped before its first checkpoint, so there is no mesh" in text and not (RESULT / "mesh.ply").exists()
    status, out, err, text = call(8)
    line = "the training stopped at step 8 of 12 because 2 steps in a row were skipped ("
    assert status == 1 and line in out and line in text and (RESULT / "mesh.ply").exists(), err
    assert "repeat the command to continue from there" in out and "reliability" in out


def test_the_steps_are_doubled_while_the_scores_increase():
    def plan(steps, longest=80):
        return ReconstructionPlan(10.0, {"dataset.downscale": "2", "train.end_iter": str(steps)}, 0.1, longest=longest)

    for curve, steps in (
        ([], 20),
        ([[10, 2.0, 20.0]], 20),  # a score of the first training only
        ([[5, 1.0, 20.0], [10, 2.0, 20.0 + LEAST_DOUBLING_GAIN]], 20),
        ([[5, 1.0, 20.0], [10, 2.0, 20.0 + 0.9 * LEAST_DOUBLING_GAIN]], None),
        ([[4, 1.0, 20.0], [10, 2.0, 20.0]], 20),  # at other steps
    ):
        assert longer(plan(10), curve) == (steps and plan(steps))
    for steps, longest in ((80, 80), (41, 80), (10, None)):
        assert longer(plan(steps, longest), [[steps // 2, 1.0, 20.0], [steps, 2.0, 30.0]]) is None


def test_results_are_written_again_after_a_longer_training(tmp_path, monkeypatch):
    plan = ReconstructionPlan(2.0, {"train.end_iter": "200"}, 0.1, is_finished=True)
    longer_one = replace(plan, settings={"train.end_iter": "400"}, is_finished=False)
    for step, after in ((0, plan), (200, plan), (400, longer_one)):
        monkeypatch.setattr(reconstruction_plan, "trained_so_far", lambda folder, step=step: (step, 1.0))
        assert reconstruction_plan.trained_further(tmp_path, plan) == after


def test_the_page_shows_size_cameras_scores_and_times(tmp_path):
    trimesh.creation.box((0.1, 0.2, 0.34567)).export(tmp_path / "mesh.ply")
    frame = WorldFrame("the floor", "4 markers of 0.03 m", 0.001, {"a|b.jpg": 0.5, "c.jpg": 1.25})
    for name, of_scene in (("metric", frame), ("other", None)):
        write_neus_scene(tmp_path / name, replace(any_scene(), frame=of_scene))
    found = size_and_cameras(dataset_config(tmp_path / "metric"), tmp_path / "mesh.ply")
    unknown = size_and_cameras(dataset_config(tmp_path / "other"), None)
    assert "- extent of the mesh along x, y, z: 0.1 x 0.2 x 0.3457 m, ± 0.10%" in found
    assert "- scale: 4 markers of 0.03 m, ± 0.10%" in found and "- up: the floor" in found
    # Cameras at 5, 5.75, 6.5 and 7.25 m with focal lengths of 150, 153, 156 and 159 pixels.
    assert "- ground sampling distance: 39.6 mm per pixel of the images of the scene folder" in found
    assert found[-4:] == ["| --- | --- |", "| c.jpg | 1.25 |", "| a\\|b.jpg | 0.50 |", ""]
    assert "Mean reprojection error of the SfM points: 0.88 px." in found
    assert any(line.startswith("- scale: not known") for line in unknown) and "- up: not known" in unknown
    assert any("ground sampling distance: 0.0396 units" in line for line in unknown)
    assert not any("extent" in line or "Cameras" in line for line in unknown)
    spent = {"training": {"wall": 60.0, "processor": 110.0}, "mesh": {"wall": 5.0, "processor": 9.0}}
    figures = {"phases": spent, "score_curve": [[1000, 30.4, 20.125], [2000, 60.0, 21.5]]}
    text = reconstruction_page.page("fox", {}, figures, [], size=found)
    assert "| 1000 | 30 | 20.12 |\n| 2000 | 60 | 21.50 |\n" in text and "- up: the floor" in text
    assert "| training | 60.0 | 110.0 |\n| mesh | 5.0 | 9.0 |\n| all | 65.0 | 119.0 |\n" in text
