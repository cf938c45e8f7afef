"""A training survives SIGKILL (tests/kill_harness.py) and a disk that takes no checkpoint; a Ctrl-C is never lost."""

import subprocess
import sys

import pytest
from runs import ROOT, SHORT, run

from models.checkpoints.ours import checkpoint_name

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("keep", "kills", "least"), [(0, 8, 10), (1, 4, 2)])
def test_no_kill_loses_a_checkpoint_or_changes_the_losses(keep, kills, least, tmp_path):
    program = [sys.executable, str(ROOT / "tests/kill_harness.py"), str(kills), str(keep), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-3]) >= least


def test_a_disk_that_takes_no_checkpoint_is_tried_again_and_ends_the_run(tmp_path, monkeypatch, capsys):
    assert run(tmp_path, settings=("train.end_iter=3", *SHORT[1:])) == 0
    (kept,) = (tmp_path / "checkpoints").iterdir()
    before, words = kept.read_bytes(), "No space left on device"

    def refuse(path, content):
        raise OSError(28, words)

    monkeypatch.setattr("models.checkpoints.ours.write_atomically", refuse)
    assert run(tmp_path, "--is_continue", settings=("train.end_iter=8", *SHORT[1:])) == 2
    told = capsys.readouterr().err
    error = told.strip().splitlines()[-1]
    assert error.startswith("error: The checkpoint ") and words in error and checkpoint_name(8) in error
    assert f"{checkpoint_name(6)} cannot be written ({words})" in told and "The training continues" in told
    assert list((tmp_path / "checkpoints").iterdir()) == [kept] and kept.read_bytes() == before


IN_A_DELETION = """
import os, signal, time
from data.io.streams import keep_interruptions
keep_interruptions()
class Deleted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10))
class Broken:
    def __del__(self):
        raise ValueError("of another kind")
Broken()
try:
    Deleted()
    for _ in range(600):
        time.sleep(0.1)
    print("lost")
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.cli
def test_an_interruption_of_a_deletion_comes_again():
    ended = subprocess.run([sys.executable, "-c", IN_A_DELETION], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "heard" and "KeyboardInterrupt" not in ended.stderr
    assert "of another kind" in ended.stderr
