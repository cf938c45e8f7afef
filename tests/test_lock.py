"""One training at a time in a folder."""

import shutil
import signal
import subprocess
import sys

import pytest
from runs import ROOT, run

from data.errors import UserError
from models.runs.run_files import TRAINING_LOCK, FolderLock

HOLD = (
    "import sys, time; from pathlib import Path; from models.runs.run_files import FolderLock\n"
    "lock = FolderLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.cli
def test_a_second_training_is_refused_until_the_process_is_dead(holder, tmp_path, capsys):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/ckpt_000003.safetensors").write_bytes(b"precious")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert run(tmp_path, "--overwrite") == 2
    error = capsys.readouterr().err
    assert f"another training (process {holder.pid}) is running in {tmp_path}" in error and error.count("\n") == 1
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / TRAINING_LOCK).read_text() == f"{holder.pid}\n"
    FolderLock(tmp_path).release()


def test_a_foreign_text_is_not_quoted(tmp_path):
    lock = FolderLock(tmp_path)
    (tmp_path / TRAINING_LOCK).write_text("; rm -rf\n")
    with pytest.raises(UserError, match="another training is running"):
        FolderLock(tmp_path)
    lock.release()


def test_a_disk_that_does_not_answer_for_a_while_ends_nothing(tmp_path, monkeypatch):
    def failing(*_args):
        raise OSError(116, "Stale file handle")

    lock = FolderLock(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("data.io.lock.os.lstat", failing)
        assert lock.is_held()
    shutil.rmtree(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("data.io.lock.open_regular", failing)
        assert lock.is_held() and lock.is_held()
    assert not lock.is_held() and lock.is_held()
    lock.release()
