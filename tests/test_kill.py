"""A training survives SIGKILL; tests/kill_harness.py does the same 200 times by itself."""

import os
import re
import subprocess
import sys

import kill_harness
import pytest
from runs import ROOT, SHORT, run
from trainings import stopped_after

from models.checkpoints.ours import checkpoint_name

pytestmark = pytest.mark.slow

KILLS = 10


@pytest.mark.parametrize(("keep", "least"), [(0, 10), (1, 3)])
def test_no_kill_loses_a_checkpoint_and_resumed_losses_are_those_of_an_unbroken_run(keep, least):
    program = [sys.executable, str(ROOT / "tests/kill_harness.py"), "--kills", str(KILLS), "--keep", str(keep)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    match = re.search(rf"{KILLS} kills, .* (\d+) steps, (\d+) checkpoints and their losses compared", done.stdout)
    assert int(match[1]) >= kill_harness.LEAST_STEPS and int(match[2]) >= least


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder) == 0
    return folder


@pytest.mark.parametrize(("number", "words"), [(28, "No space left on device"), (30, "Read-only file system")])
def test_a_disk_that_takes_no_checkpoint_is_tried_again_and_ends_the_run_with_one_sentence(
    number, words, trained, tmp_path, monkeypatch, capsys
):
    folder = stopped_after(3, trained, tmp_path / "run")
    (kept,) = (folder / "checkpoints").iterdir()
    before = kept.read_bytes()

    def refuse(path, content):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("models.checkpoints.ours.write_atomically", refuse)
    assert run(folder, "--is_continue", settings=("train.end_iter=8", *SHORT[1:])) == 2
    told = capsys.readouterr().err
    error = told.strip().splitlines()[-1]
    assert error.startswith("error: The checkpoint ") and words in error and checkpoint_name(8) in error
    assert f"{checkpoint_name(6)} cannot be written ({words})" in told and "The training continues" in told
    assert list((folder / "checkpoints").iterdir()) == [kept] and kept.read_bytes() == before
