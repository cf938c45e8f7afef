"""Benchmarks: command line, table and profile of a step, table of reconstructions; the times are not tested."""

import json
import subprocess
import sys

import pytest

from benchmarks import bm_reconstruct, bm_step
from benchmarks.profile_step import FIELDS, OPTIMISER, SAMPLING
from benchmarks.report import ROOT


@pytest.mark.parametrize("words", ["--steps 0", "--peer x", "--shape 1x1", "--set train.no_such_key=1"])
def test_a_wrong_command_line_is_one_sentence_and_status_2(words, capsys):
    assert bm_step.main(words.split()) == 2
    assert words.split("=")[0].split()[0] in capsys.readouterr().err


def test_the_table_of_reconstructions_has_medians_and_a_phase_that_a_run_lacks():
    walls = ({"features": 1.0, "training": 10.0}, {"features": 3.0, "training": 20.0}, {"features": 2.0})
    runs = [{"phases": {name: {"wall": wall, "processor": wall} for name, wall in run.items()}} for run in walls]
    rows = bm_reconstruct.medians(runs)
    assert rows == [("features", 2.0, 2.0), ("training", 10.0, 10.0), ("all", 11.0, 11.0)]


@pytest.mark.slow
def test_the_program_runs_as_a_file_and_profiles_a_step_by_phase():
    program = [sys.executable, str(ROOT / "benchmarks" / "bm_step.py"), "--shape", "8x8+8", "--steps", "1"]
    shown = subprocess.run([*program, "--profile"], cwd="/", capture_output=True, text=True, check=True).stdout
    assert f"| {SAMPLING} | native sdf_distance |" in shown and f"| {FIELDS} | native sdf_backward |" in shown
    assert f"| {OPTIMISER} | native adam |" in shown and "| step 8x8+8, s |" in shown
    assert len(json.loads(shown.splitlines()[-1])["seconds"]["8x8+8"]["ours"]) == 3
