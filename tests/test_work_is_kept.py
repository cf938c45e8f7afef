"""Whatever a training meets through the command line, it loses no work; where it is refused it leaves nothing."""

import contextlib
import fcntl
import shutil
import subprocess
from dataclasses import replace

import pytest
from runs import GOLDEN, ROOT, SHORT, command, contents, run, saved
from test_guard import spoil_batches, spoil_image

from data.errors import UserError
from models.conf import load_config
from models.runs.logger import RunLogger
from models.runs.run_files import TRAINING_LOCK, record
from models.training.trainer import Trainer

pytestmark = pytest.mark.slow


def files(folder):
    """What lies in a folder, but for its log."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder) == 0
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    """A folder with the checkpoints of steps 3 and 6."""
    return shutil.copytree(trained / "checkpoints", tmp_path / "run" / "checkpoints").parent


def after_step_4(monkeypatch, action):
    """Have something happen when the fourth step is done."""
    original = Trainer.step

    def step(self):
        output = original(self)
        if self.finished_steps == 4:
            action()
        return output

    monkeypatch.setattr(Trainer, "step", step)


def test_going_on_from_a_chosen_checkpoint_keeps_what_it_writes_alone(copy):
    chosen = shutil.copy(copy / "checkpoints/ckpt_000003.safetensors", copy.parent / "chosen.safetensors")
    before = files(copy)
    assert run(copy, "--checkpoint", str(chosen)) == 2 and files(copy) == before
    settings = ("train.end_iter=5", *SHORT[1:], "train.keep_checkpoints=1")
    assert run(copy, "--checkpoint", str(chosen), "--overwrite", settings=settings) == 0
    assert [path.name for path in (copy / "checkpoints").iterdir()] == ["ckpt_000005.safetensors"]


def test_what_is_refused_costs_no_checkpoint_and_leaves_no_folder(copy, tmp_path, monkeypatch, capsys):
    def refuse(*given):
        raise UserError("it does not fit")

    before = files(copy)
    program = ["env", "cc_path=no-such-compiler", *command(tmp_path / "above/new", "--overwrite")]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 2 and "no-such-compiler is missing" in done.stderr
    source = str(GOLDEN / "official_wmask_000040.pth")  # weights of other shapes
    for mode in ("train", "validate_mesh"):
        assert run(tmp_path / "above/new", "--mode", mode, "--checkpoint", source) == 2
        error = capsys.readouterr().err
        assert "sdf_network_fine" in error and error.count("\n") == 1
    monkeypatch.setattr("models.commands.runner.chosen_chunk", refuse)
    assert run(copy, "--overwrite") == 2
    assert files(copy) == before and sorted(path.name for path in copy.iterdir()) == ["checkpoints"]
    assert not (tmp_path / "above").exists()


def test_a_training_that_ends_before_its_first_checkpoint_costs_nothing(copy, monkeypatch, capsys):
    before = contents(saved(copy, 6))
    spoil_batches(monkeypatch, set(range(100)), spoil_image)
    assert run(copy, "--overwrite", settings=(*SHORT, "train.max_bad_steps=2")) == 1
    assert "so no checkpoint is written" in capsys.readouterr().err
    end = ("train.end_iter=8", *SHORT[1:], "train.ray_chunk=256")
    for folder, flag in ((copy.parent / "new", "--overwrite"), (copy, "--is_continue")):  # every step is refused
        held = files(folder / "checkpoints")
        assert run(folder, flag, settings=end) == 1
        told = capsys.readouterr()
        last = told.err.strip().splitlines()[-1]
        assert "so no checkpoint is written" in last and "the colours of photograph" in last
        assert "trained to" not in told.out and files(folder / "checkpoints") == held
    monkeypatch.undo()
    assert contents(saved(copy, 6)) == before and saved(copy, 3).step == 3
    assert run(copy, "--is_continue") == 0
    assert "already trained to step 6" in capsys.readouterr().out


def test_a_last_step_that_leads_back_is_not_the_last(tmp_path, monkeypatch, capsys):
    spoil_batches(monkeypatch, {4, 5}, spoil_image)
    assert run(tmp_path, settings=(*SHORT, "train.max_bad_steps=2", "train.ray_chunk=256")) == 0
    told = capsys.readouterr()
    assert "returning to the weights of step 4" in told.err and "trained to step 6" in told.out
    assert saved(tmp_path, 6).adam_steps == 2  # with fresh moments


def test_pictures_and_meshes_that_do_not_fit_the_disk_end_no_training(tmp_path, monkeypatch, capsys):
    def refuse(path, content):
        raise OSError(28, "No space left on device")

    for place in ("data.io.images", "data.io.files"):
        monkeypatch.setattr(f"{place}.write_atomically", refuse)
    monkeypatch.setattr("models.commands.runner.record", lambda *_: None)
    spoil_batches(monkeypatch, {1, 2}, spoil_image)
    often = ("train.val_freq=2", "train.val_mesh_freq=2", "train.validate_resolution_level=20", "train.ray_chunk=256")
    assert run(tmp_path, settings=(*SHORT[:3], *often)) == 0
    told = capsys.readouterr().err
    assert told.count("No space left on device") == told.count("could not be written; the training continues") == 3
    assert saved(tmp_path, 6).adam_steps == 4


def test_logs_and_recordings_follow_no_link(tmp_path):
    source, outside = tmp_path / "source", tmp_path / "outside"
    for folder in (source / "net/deep", outside):
        folder.mkdir(parents=True)
    for name in ("main.py", "net/__init__.py", "net/deep/__init__.py", "net/deep/layer.py"):
        (source / name).touch()
    (source / "net/itself").symlink_to(source / "net")
    conf = load_config(ROOT / "confs/debug.conf")
    conf = replace(conf, general=replace(conf.general, recording=(str(source),)))
    for number, name in enumerate(("logs", "logs/train.log", "recording", "recording/source", "recording/config.conf")):
        folder = tmp_path / str(number)
        (folder / name).parent.mkdir(parents=True)
        (folder / name).symlink_to(outside / "file" if "." in name else outside)
        with RunLogger(folder, quiet=True) as log:
            log.info("text")
            log.scalars(1, {"Loss/loss": 1.0})
        with contextlib.suppress(UserError):
            record(folder, conf)
        assert not list(outside.iterdir())
    record(tmp_path / "run", conf)
    assert len(list((tmp_path / "run/recording/source").rglob("*.py"))) == 4


def test_a_deleted_folder_is_made_anew_and_a_taken_one_left_alone(trained, tmp_path, monkeypatch, capsys):
    folder, others = tmp_path / "run", []
    after_step_4(monkeypatch, lambda: shutil.rmtree(folder))
    assert run(folder) == 0
    assert "was deleted during training" in capsys.readouterr().err
    assert contents(saved(folder, 6)) == contents(saved(trained, 6)) and (folder / TRAINING_LOCK).is_file()

    def take():
        shutil.rmtree(folder)
        folder.mkdir()
        others.append(open(folder / TRAINING_LOCK, "w"))  # noqa: SIM115 (held open: it is the lock)
        fcntl.flock(others[0], fcntl.LOCK_EX)

    monkeypatch.undo()
    after_step_4(monkeypatch, take)
    assert run(folder, "--overwrite") == 2
    others[0].close()
    assert "another training is running" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [TRAINING_LOCK]
