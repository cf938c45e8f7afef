"""`--mode reconstruct`: one call from photographs to a mesh, which goes on where it stopped and says what is amiss."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import rendered_photographs
from test_guard import spoil_gradients

import exp_runner
from data.errors import UserError
from data.io.images import write_image
from models.commands import evaluate, reconstruction, reconstruction_page, reconstruction_settings, train
from models.commands.arguments import parse_arguments
from models.commands.conf import read_conf
from models.commands.program import PROGRAM_FOLDER
from models.commands.reconstruct import case_of
from models.evaluation.references import NoReferencesError
from models.methods.conf import load_config
from models.training import pace

SMALL = ("train.batch_size=64", "model.packed.samples=512", "model.packed.cells=16", "model.packed.anywhere=0")
SMALL += ("model.sdf_grid.levels=2", "model.sdf_grid.finest=32", "model.sdf_grid.log2_rows=10")
SMALL += ("model.color_grid.levels=1", "model.color_grid.log2_rows=10")
FAST = PROGRAM_FOLDER / reconstruction.CONF
RESULTS = ("health.json", "health.md", "mesh.ply", "metrics.json", "overview.png", "report.png", "result.md")


def run(capsys, *arguments):
    flags = [flag for setting in SMALL for flag in ("--set", setting)]
    status = exp_runner.main(["--mode", "reconstruct", "--resolution", "24", *flags, *map(str, arguments)])
    return status, capsys.readouterr()


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
def test_one_call_goes_from_photographs_to_a_mesh_and_a_stopped_one_goes_on(photographs, capsys, monkeypatch):
    with monkeypatch.context() as stopped:
        stopped.setattr(reconstruction, "train", _ending(130))
        status, said = run(capsys, "--images", photographs, "--minutes", 1e-4)
    assert status == 130 and "repeat the command to continue" in said.out
    plan = json.loads(Path("exp/my_photos/fast/reconstruct.json").read_text())
    assert int(plan["settings"]["train.end_iter"]) >= 6 and plan["seconds_per_step"] > 0

    monkeypatch.setattr(pace, "seconds_per_step", lambda *given: pytest.fail("measured again"))
    status, said = run(capsys, "--images", photographs, "--minutes", 1e-4)
    assert status == 0, said.err
    result = Path("exp/my_photos/fast/result")
    assert sorted(path.name for path in result.iterdir()) == sorted(RESULTS)
    assert f"train.end_iter={plan['settings']['train.end_iter']}" in said.out
    assert (result / "mesh.ply").read_bytes().count(b"property uchar red") == 1
    assert "## Reliability" in (result / "result.md").read_text()
    assert "--clean views" in said.out.split("step 4 of 5")[1].splitlines()[0], "a made-up back is no result"
    assert "--clean views" in (result / "result.md").read_text()
    assert "--resolution 24" in said.out.split("step 5 of 5")[1].splitlines()[0], "not finer than the mesh"
    kept = (result / "mesh.ply").read_bytes()
    (result / "mesh.ply").unlink()
    _, further, _, _, _, last = (result / "result.md").read_text().split("```bash\n")[1].split("\n```")[0].splitlines()
    assert exp_runner.main(shlex.split(last)[2:]) == 0 and (result / "mesh.ply").read_bytes() == kept, last
    longer = f"train.end_iter={2 * int(plan['settings']['train.end_iter'])}"
    assert longer in further and "--mode train --is_continue" in further
    capsys.readouterr()
    phases = json.loads((result / "metrics.json").read_text())["phases"]
    assert set(phases) == {
        *(
            "features",
            "matches",
            "mapping",
            "scene",
            "checks",
            "compiling",
            "measuring",
            "depth maps",
            "training",
            "images",
            "mesh",
        ),
        "report",
    }
    assert all(spent["wall"] > 0 for spent in phases.values()), "those of the stopped call count too"
    assert "| mapping |" in (result / "result.md").read_text()
    assert "reliability: " in said.out and "next: " not in said.out, "it does the steps itself"
    assert said.out.count(f"python {PROGRAM_FOLDER / 'exp_runner.py'} --conf") == 4, "the user is outside its folder"

    status, said = run(capsys, "--images", photographs, "--minutes", 1e-4)
    assert status == 0 and "was already complete" in said.out and "step 3" not in said.out
    status, said = run(capsys, "--images", photographs, "--minutes", 5)
    assert status == 2 and "contains a reconstruction with --minutes 0.0001; pass" in said.err


def _ending(status):
    """Stands for the module of training, for the chain alone: one that does nothing and returns a status."""
    return SimpleNamespace(COMMAND=replace(train.COMMAND, run=lambda arguments, conf: status))


@pytest.mark.slow
def test_what_may_go_wrong_is_said_before_the_training(photographs, capsys, monkeypatch):
    monkeypatch.setattr(reconstruction, "train", _ending(130))
    _, said = run(capsys, "--images", photographs, "--set", "train.end_iter=7")
    assert "before the training: views (bad): 6; so few views do not determine the shape" in said.out
    assert said.out.index("before the training") < said.out.index("step 3 of 5")
    assert "train.end_iter=7" in said.out.split("step 3 of 5")[1], "steps that are given are not measured"


@pytest.mark.slow
def test_checkpoints_of_others_are_not_replaced(photographs, capsys):
    folder = Path("exp/my_photos/fast/checkpoints")
    folder.mkdir(parents=True)
    (folder / "ckpt_000005.safetensors").write_bytes(b"of another training")
    status, said = run(capsys, "--images", photographs)
    assert status == 2 and "did not make; pass --overwrite" in said.err
    assert not Path("public_data").exists(), "it is said before the cameras are sought"


@pytest.mark.slow
def test_a_plan_that_is_damaged_is_named(photographs, capsys):
    folder = Path("exp/my_photos/fast")
    folder.mkdir(parents=True)
    (folder / "reconstruct.json").write_text('{"minutes": "ten"}')
    status, said = run(capsys, "--images", photographs)
    assert status == 2 and "reconstruct.json: is damaged; pass --overwrite" in said.err


@pytest.mark.slow
def test_what_was_settled_is_not_set_otherwise_later(photographs, capsys):
    folder = Path("exp/my_photos/fast")
    folder.mkdir(parents=True)
    (folder / "reconstruct.json").write_text('{"minutes": 10, "settings": {"train.end_iter": "900"}}')
    status, said = run(capsys, "--images", photographs, "--minutes", "10", "--set", "train.end_iter=7")
    assert status == 2 and "--set train.end_iter=7: " in said.err
    assert "contains a reconstruction with train.end_iter = 900; leave it out" in said.err
    assert not Path("public_data").exists(), "it is said before the cameras are sought"


MISTAKES = {
    "no images": ([], "--mode reconstruct: give --images FOLDER"),
    "missing": (["--images", "nowhere"], "--images nowhere: no such folder or video"),
    "no time": (["--images", "x", "--minutes", "0"], "--minutes 0: must be above 0"),
    "minutes in words": (["--images", "x", "--minutes", "ten"], "'ten' is not a finite number"),
    "an output": (["--images", "x", "--output", "a.ply"], "--output: --mode reconstruct writes result/mesh.ply"),
    "a texture": (["--images", "x", "--colour", "texture"], "--colour texture: --mode reconstruct writes result/"),
    "a nameless folder": (["--images", "/"], "pass --case NAME"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    status, said = run(capsys, *MISTAKES[name][0])
    assert status == exp_runner.EXIT_USER_ERROR and MISTAKES[name][1] in said.err
    assert said.err.count("\n") == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [((), {"dataset.test_every": "8"}), (("dataset.test_every=0",), {}), (("dataset.train_views=[0,1,2]",), {})],
)
def test_photographs_are_held_out_unless_flags_or_conf_choose_them(tmp_path, settings, expected):
    (tmp_path / "image").mkdir()
    for view in range(16):
        write_image(tmp_path / "image" / f"{view:03d}.png", np.zeros((4, 4, 3), np.uint8))
    typed = ["--mode", "reconstruct", "--images", str(tmp_path / "image"), "--case", "a", "--conf", str(FAST)]
    typed += [word for text in (f"dataset.data_dir={tmp_path}",) for word in ("--set", text)]
    arguments = parse_arguments(typed + [word for text in settings for word in ("--set", text)])
    assert reconstruction_settings.chosen_settings(arguments, read_conf(arguments), 10.0) == expected
    # the same keys in the conf in place of flags
    in_conf = load_config(FAST, "a", (f"dataset.data_dir={tmp_path}", *settings))
    plain = parse_arguments(typed)
    found = reconstruction_settings.chosen_settings(plain, in_conf, 10.0)
    assert found == ({"dataset.test_every": "8"} if settings == ("dataset.test_every=0",) else expected)


@pytest.mark.slow
def test_a_scene_with_nothing_to_compare_with_still_gets_a_mesh_and_a_page(photographs, capsys, monkeypatch):
    def nothing(*given):
        raise NoReferencesError("has no held-out photographs")

    monkeypatch.setattr(reconstruction, "evaluate", SimpleNamespace(COMMAND=replace(evaluate.COMMAND, run=nothing)))
    status, said = run(capsys, "--images", photographs, "--set", "train.end_iter=7", "--minutes", 1e-4, "--gpu", 3)
    assert status == 0 and "no metrics: has no held-out photographs" in said.out, said.err
    result = Path("exp/my_photos/fast/result")
    page = (result / "result.md").read_text()
    assert (result / "mesh.ply").is_file() and "the quality of the mesh could not be measured" in page
    assert page.count("--gpu 3") == 3


@pytest.mark.slow
def test_an_evaluation_that_fails_is_not_taken_for_one_without_references(photographs, capsys, monkeypatch):
    def full(*given):
        raise UserError("exp: no space is left")

    monkeypatch.setattr(reconstruction, "evaluate", SimpleNamespace(COMMAND=replace(evaluate.COMMAND, run=full)))
    status, said = run(capsys, "--images", photographs, "--set", "train.end_iter=7", "--minutes", 1e-4)
    assert status == 2 and "no space is left" in said.err and "no metrics" not in said.out


def test_minutes_belong_to_it(capsys):
    assert exp_runner.main(["--minutes", "3"]) == 2
    assert "--minutes: is a flag of --mode reconstruct" in capsys.readouterr().err


def test_the_name_of_a_scene_is_that_of_its_photographs(tmp_path):
    from argparse import Namespace

    (tmp_path / "a walk.mp4").write_bytes(b"")
    assert case_of(Namespace(images=tmp_path / "a walk.mp4"), "") == "a_walk"
    assert case_of(Namespace(images=tmp_path / "a walk.mp4"), "bear") == "bear"


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"points_missing": 0.7}, "only 30% of the SfM points"),
        ({"points_missing": 0.3}, "parts of the mesh are wrong"),
        ({"points_missing": 0.01}, "is reliable"),
        ({"psnr": 12.0}, "the views are not consistent with one shape"),
        (
            {"psnr": 12.0, "psnr_mask": 30.0, "counts_first": "psnr_mask"},
            "30.0 dB, which does not verify depth",
        ),
        ({"epipolar_px": 9.0}, "the cameras are wrong"),
        ({}, "the quality of the mesh could not be measured"),
    ],
)
def test_figures_say_how_far_to_trust_a_result(figures, words):
    assert words in reconstruction_page.trust(figures)[0]


def test_the_conf_is_the_quick_one():
    assert (PROGRAM_FOLDER / reconstruction.CONF).is_file()


@pytest.mark.slow
def test_a_training_that_diverges_leaves_mesh_pictures_and_a_page_that_says_so_and_goes_on(
    photographs, capsys, monkeypatch
):
    few = ("--set", "train.end_iter=12", "--set", "train.max_bad_steps=2", "--set", "train.save_freq=4")
    with monkeypatch.context() as broken:
        spoil_gradients(broken, set(range(8, 100)), 0)
        status, said = run(capsys, "--images", photographs, *few)
    result = Path("exp/my_photos/fast/result")
    assert status == 1, said.err
    line = "the training stopped at step 8 of 12 because 2 steps in a row were skipped ("
    assert line in said.out and line in (result / "result.md").read_text()
    assert sorted(path.name for path in result.iterdir()) == sorted(RESULTS)
    assert "repeat the command to continue from there" in said.out and "reliability" in said.out

    status, said = run(capsys, "--images", photographs, *few)
    assert status == 0 and "times the learning rate" in said.out, said.err
    assert "stopped at step" not in (result / "result.md").read_text()


@pytest.mark.slow
def test_a_training_that_learns_nothing_leaves_a_page_that_says_so(photographs, capsys, monkeypatch):
    spoil_gradients(monkeypatch, set(range(100)), 0)
    status, said = run(capsys, "--images", photographs, "--set", "train.end_iter=7")
    result = Path("exp/my_photos/fast/result")
    assert status == 1 and "NaN or Inf in the gradient of" in said.err
    assert "stopped before its first checkpoint, so there is no mesh" in (result / "result.md").read_text()
    assert not (result / "mesh.ply").exists()


@pytest.mark.slow
def test_a_mesh_without_a_surface_is_a_page_that_says_so(photographs, capsys, monkeypatch):
    status, said = run(capsys, "--images", photographs, "--set", "train.end_iter=6", "--mcube_threshold", "50")
    result = Path("exp/my_photos/fast/result")
    assert status == 1, said.err
    text = (result / "result.md").read_text()
    assert "no surface was found" in text and "mesh.ply: " not in text and "no surface was found" in said.out
    assert (result / "report.png").is_file() and not (result / "mesh.ply").exists()
    assert "no surface was found" in Path("exp/my_photos/fast/report.html").read_text()


def test_the_page_shows_the_scores_of_the_training_and_the_times():
    spent = {"training": {"wall": 60.0, "processor": 110.0}, "mesh": {"wall": 5.0, "processor": 9.0}}
    figures = {"phases": spent, "score_curve": [[1000, 30.4, 20.125], [2000, 60.0, 21.5]]}
    text = reconstruction_page.page("fox", {}, figures, [])
    assert "| 1000 | 30 | 20.12 |\n| 2000 | 60 | 21.50 |\n" in text
    assert "| training | 60.0 | 110.0 |\n| mesh | 5.0 | 9.0 |\n| all | 65.0 | 119.0 |\n" in text
    without = reconstruction_page.page("fox", {}, {}, [])
    assert "## Training" not in without and "## Time" not in without
