"""The benchmark of a step: its command line, its table and its profile; the times are not tested."""

import json
import subprocess
import sys

import pytest

from benchmarks import bm_step
from benchmarks.profile_step import FIELDS, OPTIMISER, SAMPLING, kind_of
from benchmarks.report import ROOT


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "--steps 0"),
        (["--warm-up", "-1"], "--warm-up -1"),
        (["--peer", "x"], "--peer-python"),
        (["--peer", "/nowhere", "--peer-python", "x"], "no models/renderer.py"),
        (["--shape", "1x1"], "--shape 1x1"),
        (["--set", "train.no_such_key=1"], "no_such_key"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(arguments, words, capsys):
    assert bm_step.main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_the_program_runs_as_a_file_and_profiles_a_step_by_phase():
    program = [sys.executable, str(ROOT / "benchmarks" / "bm_step.py"), "--shape", "8x8+8", "--steps", "1"]
    shown = subprocess.run([*program, "--profile"], cwd="/", capture_output=True, text=True, check=True).stdout
    assert f"| {SAMPLING} | native sdf_distance |" in shown and f"| {FIELDS} | native sdf_backward |" in shown
    assert f"| {OPTIMISER} | native adam |" in shown and "| step 8x8+8, s |" in shown
    assert len(json.loads(shown.splitlines()[-1])["seconds"]["8x8+8"]["ours"]) == 3


def test_operations_are_told_by_kind():
    assert kind_of("code[x]", "neus::sdf_forward(") == "native sdf_forward"
    assert kind_of("mkl_matmul", "") == "matrix product"
