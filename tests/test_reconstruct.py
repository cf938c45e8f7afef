"""`--mode reconstruct`: one call from photographs to a mesh, which goes on where it stopped and says what is amiss."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

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
from data.writers.neus import write_neus_scene
from models.commands import evaluate, reconstruction, reconstruction_page, reconstruction_settings, train
from models.commands.arguments import parse_arguments
from models.commands.program import PROGRAM_FOLDER
from models.commands.reconstruction_folder import ReconstructionPlan
from models.commands.reconstruction_settings import LEAST_GAIN, longer
from models.commands.reconstruction_size import size_and_cameras
from models.evaluation.references import NoReferencesError
from models.methods.conf import load_config
from models.report.document import read_page
from models.training import pace

SMALL = ("train.batch_size=64", "model.packed.samples=512", "model.packed.cells=16", "model.packed.anywhere=0")
SMALL += ("model.sdf_grid.levels=2", "model.sdf_grid.finest=32", "model.sdf_grid.log2_rows=10")
SMALL += ("model.color_grid.levels=1", "model.color_grid.log2_rows=10")
FAST = PROGRAM_FOLDER / reconstruction.CONF
FOLDER = Path("exp/my_photos/fast")
RESULT = FOLDER / "result"
SETTLED = '{"minutes": 10, "settings": {"train.end_iter": "900"}}'
PHASES = ("features", "matches", "mapping", "scene", "checks", "compiling", "measuring", "depth maps", "training")
PHASES += ("images", "mesh", "report")
RESULTS = (
    "cover.png",
    "health.json",
    "health.md",
    "mesh.ply",
    "metrics.json",
    "overview.png",
    "report.png",
    "result.md",
)


def run(capsys, *arguments):
    flags = [flag for setting in SMALL for flag in ("--set", setting)]
    status = exp_runner.main(["--mode", "reconstruct", "--resolution", "24", *flags, *map(str, arguments)])
    return status, capsys.readouterr()


def stand_in(module, run):
    """The module of a mode whose command does `run` in place of its own work."""
    return SimpleNamespace(COMMAND=replace(module.COMMAND, run=run))


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Six photographs of the corner in ./my photos; trials and trainings are of a few steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pace, "FIRST_STEPS", 2)
    monkeypatch.setattr(pace, "TIMED_STEPS", 4)
    monkeypatch.setattr(reconstruction_settings, "LEAST_STEPS", 6)
    rendered_photographs.write_photographs(tmp_path / "my photos", 6)
    return tmp_path / "my photos"


@pytest.mark.slow
def test_one_call_gives_a_mesh_and_a_stopped_one_goes_on(photographs, capsys, monkeypatch):
    call = ("--images", photographs, "--minutes", 1e-4)
    with monkeypatch.context() as stopped:
        stopped.setattr(reconstruction, "train", stand_in(train, lambda *given: 130))
        status, said = run(capsys, *call)
    assert status == 130 and "repeat the command to continue" in said.out
    assert "before the training: views (bad): 6; so few views do not determine the shape" in said.out
    assert said.out.index("before the training") < said.out.index("step 3 of 5")
    plan = json.loads((FOLDER / "reconstruct.json").read_text())
    steps = int(plan["settings"]["train.end_iter"])
    assert steps >= 6 and plan["seconds_per_step"] > 0

    monkeypatch.setattr(pace, "seconds_per_step", lambda *given: pytest.fail("measured again"))
    status, said = run(capsys, *call)
    assert status == 0, said.err
    text = (RESULT / "result.md").read_text()
    assert sorted(path.name for path in RESULT.iterdir()) == sorted(RESULTS)
    assert f"train.end_iter={steps}" in said.out
    kept = (RESULT / "mesh.ply").read_bytes()
    assert kept.count(b"property uchar red") == 1 and "## Reliability" in text
    assert "--clean views" in said.out.split("step 4 of 5")[1].splitlines()[0], "a made-up back is no result"
    assert "--clean views" in text
    assert "--mesh " in said.out.split("step 5 of 5")[1].splitlines()[0]
    delivered = len(trimesh.load(RESULT / "mesh.ply", process=False).faces)
    assert json.loads((RESULT / "metrics.json").read_text())["triangles"] == delivered, "one mesh"
    assert read_page(FOLDER / "report.html")["mesh"]["whole"] == delivered
    (RESULT / "mesh.ply").unlink()
    _, further, _, _, _, last = text.split("```bash\n")[1].split("\n```")[0].splitlines()
    assert exp_runner.main(shlex.split(last)[2:]) == 0 and (RESULT / "mesh.ply").read_bytes() == kept, last
    assert f"train.end_iter={2 * steps}" in further and "--mode train --is_continue" in further
    capsys.readouterr()
    phases = json.loads((RESULT / "metrics.json").read_text())["phases"]
    assert set(phases) == set(PHASES) and "| mapping |" in text
    assert all(spent["wall"] > 0 for spent in phases.values()), "those of the stopped call count too"
    assert "reliability: " in said.out and "next: " not in said.out, "it does the steps itself"
    assert said.out.count(f"python {PROGRAM_FOLDER / 'exp_runner.py'} --conf") == 4, "the user is outside its folder"

    status, said = run(capsys, *call)
    assert status == 0 and "was already complete" in said.out and "step 3" not in said.out
    status, said = run(capsys, "--images", photographs, "--minutes", 5)
    assert status == 2 and "contains a reconstruction with --minutes 0.0001; pass" in said.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("checkpoints/ckpt_000005.safetensors", "of another training", "did not make; pass --overwrite"),
        ("reconstruct.json", SETTLED, "contains a reconstruction with train.end_iter = 900; leave it out"),
    ],
)
def test_what_is_there_is_refused_before_the_cameras_are_sought(photographs, capsys, name, content, words):
    (FOLDER / name).parent.mkdir(parents=True)
    (FOLDER / name).write_text(content)
    status, said = run(capsys, "--images", photographs, "--minutes", "10", "--set", "train.end_iter=7")
    assert status == 2 and words in said.err and not Path("public_data").exists()


@pytest.mark.slow
def test_a_mistake_is_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags, words in (
        ([], "--mode reconstruct: give --images FOLDER"),
        (["--images", "nowhere"], "--images nowhere: no such folder or video"),
        (["--images", "x", "--minutes", "0"], "--minutes 0: must be above 0"),
        (["--images", "x", "--output", "a.ply"], "--output: --mode reconstruct writes result/mesh.ply"),
        (["--images", "x", "--colour", "texture"], "--colour texture: --mode reconstruct writes result/"),
        (["--images", "/"], "pass --case NAME"),
    ):
        status, said = run(capsys, *flags)
        assert status == exp_runner.EXIT_USER_ERROR and words in said.err
        assert said.err.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_views_are_held_out_unless_flags_or_conf_choose_them(tmp_path):
    (tmp_path / "image").mkdir()
    for view in range(16):
        write_image(tmp_path / "image" / f"{view:03d}.png", np.zeros((4, 4, 3), np.uint8))
    place, chosen = f"dataset.data_dir={tmp_path}", "dataset.train_views=[0,1,2]"
    typed = ["--mode", "reconstruct", "--images", str(tmp_path), "--case", "a", "--conf", str(FAST), "--set", place]
    for flags, in_conf, expected in (((), (), "8"), (("--set", chosen), (chosen,), None), ((), (chosen,), None)):
        conf = load_config(FAST, "a", (place, *in_conf))
        found = reconstruction_settings.chosen_settings(parse_arguments([*typed, *flags]), conf, 10.0)
        assert found.get("dataset.test_every") == expected


@pytest.mark.slow
def test_only_an_evaluation_without_references_may_fail(photographs, capsys, monkeypatch):
    def failing(*given):
        raise errors.pop()

    errors = [NoReferencesError("has no held-out photographs"), UserError("exp: no space is left")]
    monkeypatch.setattr(reconstruction, "evaluate", stand_in(evaluate, failing))
    call = ("--images", photographs, "--set", "train.end_iter=7", "--minutes", 1e-4, "--gpu", 3)
    status, said = run(capsys, *call)
    assert status == 2 and "no space is left" in said.err and "no metrics" not in said.out
    status, said = run(capsys, *call)
    assert status == 0 and "no metrics: has no held-out photographs" in said.out, said.err
    page = (RESULT / "result.md").read_text()
    assert (RESULT / "mesh.ply").is_file() and "the quality of the mesh could not be measured" in page
    assert page.count("--gpu 3") == 3


def test_figures_say_how_far_to_trust_a_result():
    for figures, words in (
        ({"points_missing": 0.7}, "only 30% of the SfM points"),
        ({"points_missing": 0.3}, "parts of the mesh are wrong"),
        ({"points_missing": 0.01}, "which part of the mesh they test is not known"),
        ({"psnr": 12.0}, "the views are not consistent with one shape"),
        ({"psnr": 12.0, "psnr_mask": 30.0, "counts_first": "psnr_mask"}, "30.0 dB, which does not verify depth"),
        ({"epipolar_px": 9.0}, "the cameras are wrong"),
    ):
        assert words in reconstruction_page.trust(figures)[0]


@pytest.mark.slow
def test_a_training_that_fails_leaves_what_there_is_and_goes_on(photographs, capsys, monkeypatch):
    def call(first_bad, *flags):
        with monkeypatch.context() as broken:
            spoil_gradients(broken, set(range(first_bad, 100)), 0)
            given = ("train.end_iter=12", "train.max_bad_steps=2", "train.save_freq=4")
            status, said = run(capsys, "--images", photographs, *flags, *(f"--set={text}" for text in given))
        text = (RESULT / "result.md").read_text()
        return status, said.out, said.err, text

    status, _, err, text = call(0)
    assert status == 1 and "NaN or Inf in the gradient of" in err
    assert "stopped before its first checkpoint, so there is no mesh" in text
    assert not (RESULT / "mesh.ply").exists()
    status, out, err, text = call(8)
    line = "the training stopped at step 8 of 12 because 2 steps in a row were skipped ("
    assert status == 1 and line in out and line in text, err
    assert "train.end_iter=12" in out.split("step 3 of 5")[1], "steps that are given are not measured"
    assert sorted(path.name for path in RESULT.iterdir()) == sorted(RESULTS)
    assert "repeat the command to continue from there" in out and "reliability" in out
    (RESULT / "mesh.ply").unlink()
    status, out, err, text = call(100, "--mcube_threshold", "50")
    assert status == 1 and "times the learning rate" in out, err
    assert "no surface was found" in text and "mesh.ply: " not in text and "no surface was found" in out
    assert "stopped at step" not in text and not (RESULT / "mesh.ply").exists()
    assert "no surface was found" in (FOLDER / "report.html").read_text()


def test_the_page_shows_the_scores_of_the_training_and_the_times():
    spent = {"training": {"wall": 60.0, "processor": 110.0}, "mesh": {"wall": 5.0, "processor": 9.0}}
    figures = {"phases": spent, "score_curve": [[1000, 30.4, 20.125], [2000, 60.0, 21.5]]}
    text, without = (reconstruction_page.page("fox", {}, given, []) for given in (figures, {}))
    assert "| 1000 | 30 | 20.12 |\n| 2000 | 60 | 21.50 |\n" in text
    assert "| training | 60.0 | 110.0 |\n| mesh | 5.0 | 9.0 |\n| all | 65.0 | 119.0 |\n" in text
    assert "## Training" not in without and "## Time" not in without


def test_the_steps_are_doubled_while_the_scores_increase():
    def plan(steps, longest=80):
        return ReconstructionPlan(10.0, {"dataset.downscale": "2", "train.end_iter": str(steps)}, 0.1, longest=longest)

    for curve, steps in (
        ([], 20),
        ([[10, 2.0, 20.0]], 20),  # a score of the first training only
        ([[5, 1.0, 20.0], [10, 2.0, 20.0 + LEAST_GAIN]], 20),
        ([[5, 1.0, 20.0], [10, 2.0, 20.0 + 0.9 * LEAST_GAIN]], None),
        ([[4, 1.0, 20.0], [10, 2.0, 20.0]], 20),  # at other steps
    ):
        assert longer(plan(10), curve) == (steps and plan(steps))
    for steps, longest in ((80, 80), (41, 80), (10, None)):
        assert longer(plan(steps, longest), [[steps // 2, 1.0, 20.0], [steps, 2.0, 30.0]]) is None


FRAME = WorldFrame("the floor", "4 markers of 0.03 m", 0.001, {"a|b.jpg": 0.5, "c.jpg": 1.25})


def lines(tmp_path, frame, mesh):
    write_neus_scene(tmp_path / "scene", replace(any_scene(), frame=frame))
    return size_and_cameras(dataset_config(tmp_path / "scene"), mesh)


def test_a_metric_scene(tmp_path):
    trimesh.creation.box((0.1, 0.2, 0.34567)).export(tmp_path / "mesh.ply")
    found = lines(tmp_path, FRAME, tmp_path / "mesh.ply")
    assert "- extent of the mesh along x, y, z: 0.1 x 0.2 x 0.3457 m" in found
    assert "- scale: 4 markers of 0.03 m, standard error 0.10%" in found and "- up: the floor" in found
    # Cameras at 5, 5.75, 6.5 and 7.25 m with focal lengths of 150, 153, 156 and 159 pixels.
    assert "- ground sampling distance: 39.6 mm per pixel of the images of the scene folder" in found
    assert found[-4:] == ["| --- | --- |", "| c.jpg | 1.25 |", "| a\\|b.jpg | 0.50 |", ""]
    assert "Mean reprojection error of the SfM points: 0.88 px." in found
    text = reconstruction_page.page("s", {}, {}, [], size=found)
    assert text.index("## Reliability") < text.index("## Size") < text.index("## Cameras") < text.index("## Metrics")


def test_a_scene_of_unknown_frame_and_no_mesh(tmp_path):
    found = lines(tmp_path, None, None)
    assert any(line.startswith("- scale: not known") for line in found) and "- up: not known" in found
    assert any("ground sampling distance: 0.0396 units" in line for line in found)
    assert not any("extent" in line or "Cameras" in line for line in found)
