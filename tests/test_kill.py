"""A training survives SIGKILL; tests/kill_harness.py does the same 200 times by itself."""

import os
import re
import subprocess
import sys

import kill_harness
import pytest
from runs import ROOT, SHORT, run

from models.checkpoints.ours import checkpoint_name, load_checkpoint

pytestmark = pytest.mark.slow

KILLS = 10


@pytest.mark.parametrize(("keep", "least"), [(0, 10), (1, 3)])
def test_no_kill_loses_a_checkpoint_and_resumed_losses_are_those_of_an_unbroken_run(keep, least):
    program = [sys.executable, str(ROOT / "tests/kill_harness.py"), "--kills", str(KILLS), "--keep", str(keep)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    match = re.search(rf"{KILLS} kills, .* (\d+) steps, (\d+) checkpoints and their losses compared", done.stdout)
    assert int(match[1]) >= kill_harness.LEAST_STEPS and int(match[2]) >= least


# damage of other kinds, through the command line


def flipped(content):
    middle = len(content) * 3 // 4
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGE = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "a bit flipped": flipped,
    "foreign": lambda content: b"\x80\x04not ours at all",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder) == 0
    return {path.name: path.read_bytes() for path in (folder / "checkpoints").iterdir()}


def lay_out(folder, files):
    (folder / "checkpoints").mkdir(parents=True)
    for name, content in files.items():
        (folder / "checkpoints" / name).write_bytes(content)


@pytest.mark.parametrize("name", DAMAGE)
def test_the_newest_good_checkpoint_is_used_and_nothing_before_it_is_touched(name, trained, tmp_path, capsys):
    first, newest = sorted(trained)
    lay_out(tmp_path, trained | {newest: DAMAGE[name](trained[newest])})
    (tmp_path / "logs").mkdir()
    half = tmp_path / "logs" / "events.out.tfevents.1.half"
    half.write_bytes(b"\x18\x00\x00\x00half a record")
    assert run(tmp_path, "--is_continue") == 0
    told = capsys.readouterr()
    assert newest in told.err and "Trying the previous checkpoint" in told.err and "Traceback" not in told.err
    assert "checkpoint of step 3" in told.out
    assert (tmp_path / "checkpoints" / first).read_bytes() == trained[first]
    assert half.read_bytes() == b"\x18\x00\x00\x00half a record"
    assert load_checkpoint(tmp_path / "checkpoints" / newest).step == 6


@pytest.mark.parametrize("name", DAMAGE)
def test_where_none_is_good_one_sentence_says_so_and_nothing_changes(name, trained, tmp_path, capsys):
    spoilt = {file: DAMAGE[name](content) for file, content in trained.items()}
    lay_out(tmp_path, spoilt)
    assert run(tmp_path, "--is_continue") == 2
    assert "error: None of the 2 checkpoints in" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()} == spoilt


@pytest.mark.parametrize(("number", "words"), [(28, "No space left on device"), (30, "Read-only file system")])
def test_a_disk_that_takes_no_checkpoint_is_tried_again_and_ends_the_run_with_one_sentence(
    number, words, trained, tmp_path, monkeypatch, capsys
):
    first = sorted(trained)[0]
    lay_out(tmp_path, {first: trained[first]})

    def refuse(path, content):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("models.checkpoints.ours.write_atomically", refuse)
    assert run(tmp_path, "--is_continue", settings=("train.end_iter=8", *SHORT[1:])) == 2
    told = capsys.readouterr().err
    error = told.strip().splitlines()[-1]
    assert error.startswith("error: The checkpoint ") and words in error and checkpoint_name(8) in error
    assert f"{checkpoint_name(6)} cannot be written ({words})" in told and "The training continues" in told
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [first]
    assert (tmp_path / "checkpoints" / first).read_bytes() == trained[first]
