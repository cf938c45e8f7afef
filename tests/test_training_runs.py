"""Training through the command line: what it writes, that it repeats itself, that it resumes bit for bit."""

import shlex
import shutil
import subprocess

import pytest
from runs import SHORT, command, contents, run, saved
from trainings import assert_every_parameter_moves, stopped_after

import exp_runner
from models.conf import load_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Six steps with a checkpoint after three; picture, mesh and figures of the last, which none is due at."""
    folder = tmp_path_factory.mktemp("trained")
    settings = (*SHORT[:3], "train.val_freq=2500", "train.val_mesh_freq=5000", "train.report_freq=4")
    assert run(folder, settings=settings) == 0
    return folder


def test_a_run_writes_what_the_published_code_writes(trained):
    written = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    pictures = {f"{kind}/00000006_0_0.png" for kind in ("validations_fine", "normals")}
    checkpoints = {f"checkpoints/ckpt_00000{step}.safetensors" for step in (3, 6)}
    assert written >= checkpoints | pictures | {"meshes/00000006.ply"}
    assert any(name.startswith("logs/events.out.tfevents") for name in written)
    conf = load_config(trained / "recording" / "config.conf")
    assert conf.train.end_iter == 6 and conf.general.base_exp_dir == str(trained)
    lines = [line for line in (trained / "logs/train.log").read_text().splitlines() if " INFO step " in line]
    assert [line.partition(" INFO ")[2].split(":")[0] for line in lines] == ["step 4", "step 6"]
    assert all(word in line for line in lines for word in ("loss ", ", batch PSNR ", "inv_s ", "rays/s"))
    assert_every_parameter_moves(trained)


def test_the_same_seed_gives_the_same_run_and_another_another(trained, tmp_path):
    theirs = contents(saved(trained, 6))
    assert run(tmp_path / "same") == 0 and contents(saved(tmp_path / "same", 6)) == theirs
    assert run(tmp_path, "--seed", "1") == 0
    ours = contents(saved(tmp_path, 6))
    assert all(ours[key] != theirs[key] for key in ours if key.endswith(("weight_v", "sampler", "jitter")))
    assert run(tmp_path) == 2  # checkpoints are not overwritten unless asked for
    assert contents(saved(tmp_path, 6)) == ours
    assert run(tmp_path, "--overwrite") == 0 and contents(saved(tmp_path, 6)) == theirs


def test_three_steps_a_new_process_and_three_more_equal_six(trained, tmp_path):
    folder = stopped_after(3, trained, tmp_path / "resumed")
    done = subprocess.run(command(folder, "--is_continue"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "resuming from the checkpoint of step 3" in done.stdout
    assert contents(saved(folder, 6)) == contents(saved(trained, 6))


def test_a_finished_run_is_left_alone(trained, capsys):
    before = contents(saved(trained, 6))
    assert run(trained, "--is_continue") == 0
    said = capsys.readouterr().out
    assert "already trained to step 6" in said
    assert contents(saved(trained, 6)) == before
    assert f"report: {trained / 'report.html'}\n" in said and (trained / "report.html").is_file()
    words = shlex.split(said.splitlines()[-1].removeprefix("next: "))
    assert words[0] == "python" and exp_runner.main([*words[2:], "--resolution", "16"]) == 0


def test_after_a_damaged_newest_checkpoint_the_one_before_is_used(trained, tmp_path, capsys):
    shutil.copytree(trained / "checkpoints", tmp_path / "checkpoints")
    newest = tmp_path / "checkpoints/ckpt_000006.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert run(tmp_path, "--is_continue") == 0
    told = capsys.readouterr()
    assert "ckpt_000006.safetensors is damaged" in told.err and "Trying the previous checkpoint" in told.err
    assert "checkpoint of step 3" in told.out
    assert all(contents(saved(tmp_path, step)) == contents(saved(trained, step)) for step in (3, 6))
