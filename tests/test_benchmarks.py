"""The benchmarks' command line, counts, table and processes; what they measure is not a test's business."""

import subprocess
import sys

import pytest

from benchmarks import bm_step, flops, shapes
from benchmarks.report import FULL, MATMUL, OURS, PEER, step_rows


def test_the_released_step_needs_about_what_six_and_three_passes_cost():
    model = shapes.shape_conf(FULL).model
    sdf, color = 524_544, 271_360  # multiply-adds of a forward pass, by hand from confs/base/neus.conf
    passes = 512 * 2 * (128 * (6 * sdf + 3 * color) + 112 * sdf)
    assert 0.9 < flops.step_flops(model, 512).total / passes < 1.0


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


def answers(seconds, **more):
    return [{"seconds": value, "loss": 0.5, "rate": 1e9, "peak_bytes": 2**20} | more for value in seconds]


def test_figures_are_medians_after_the_warm_up():
    given = {OURS: answers([9, 1, 2, 6]), PEER: answers([9, 4, 8, 12], peak_bytes=2**22), MATMUL: answers([1] * 4)}
    rows = {row.name: row for row in step_rows(FULL, 10**9, given, warm_up=1)}
    step, memory = rows[f"step {FULL}, s"], rows[f"peak memory {FULL}, MiB"]
    assert (step.ours, step.peer, step.ratio, step.is_reached) == (2, 8, 0.25, True)
    assert (memory.ours, memory.peer) == (1, 4)
    assert rows[f"share of matmul rate {FULL}"].ours == 0.5
    assert rows[f"first loss {FULL}, relative difference"].ours == 0.0


@pytest.mark.cli
def test_the_program_runs_as_a_file():
    command = [sys.executable, str(shapes.ROOT / "benchmarks" / "bm_step.py"), "--help"]
    shown = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    assert "--peer-python" in shown
