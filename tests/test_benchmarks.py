"""The benchmark of a step: its command line; the measurements are not tested."""

import subprocess
import sys

import pytest

from benchmarks import bm_step, shapes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "--steps 0"),
        (["--threads", "0"], "--threads 0"),
        (["--warm-up", "-1"], "--warm-up -1"),
        (["--peer", "x"], "--peer-python"),
        (["--peer-python", "x"], "--peer FOLDER"),
        (["--peer", "/nowhere", "--peer-python", "x"], "no models/renderer.py"),
        (["--set", "train.no_such_key=1"], "no_such_key"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(arguments, words, capsys):
    assert bm_step.main(arguments) == 2
    shown = capsys.readouterr()
    assert words in shown.err and "Traceback" not in shown.err and shown.out == ""


@pytest.mark.cli
def test_the_program_runs_as_a_file():
    command = [sys.executable, str(shapes.ROOT / "benchmarks" / "bm_step.py"), "--help"]
    shown = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    assert "--peer-python" in shown
