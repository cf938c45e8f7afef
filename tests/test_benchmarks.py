"""Benchmarks and `make cuda-check`, here without a GPU: command lines, tables, profile; the times are not tested."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from forms import functions

from benchmarks import bm_reconstruct, bm_step, cuda_check
from benchmarks.profile_step import FIELDS, OPTIMISER, SAMPLING
from benchmarks.report import ROOT


@pytest.mark.parametrize("words", ["--steps 0", "--peer x", "--shape 1x1", "--set train.no_such_key=1"])
def test_a_wrong_command_line_is_one_sentence_and_status_2(words, capsys):
    assert bm_step.main(words.split()) == 2
    assert words.split("=")[0].split()[0] in capsys.readouterr().err


def test_the_table_of_reconstructions_has_medians():
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


# what is compiled for a GPU, and what is read from the machine code


def test_every_function_that_python_calls_is_compiled():
    found = cuda_check.sources()
    assert len(found) > 20
    for source in found.values():
        used = cuda_check.program(source).rpartition("void *used[]")[2]
        assert functions(source) and all(f"&neus::{name}<" in used for name in functions(source))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_an_operation_is_told_with_registers_and_instructions(capsys):
    assert cuda_check.main(["--operation", "weighted_means", "--capability", "7.5", "--capability", "9.0"]) == 0
    told = capsys.readouterr().out
    assert told.count("ok     weighted_means for ") == 2 and "0 bytes spilled" in told and " instructions" in told


IN_TILES = (("placing", "sdf_tiles", 48), ("sdf_mlp", "sdf_bars", 8), ("color_mlp", "gradients", 8))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize(("operation", "kernel", "products"), IN_TILES)
def test_networks_in_tiles_use_tensor_cores_and_spill_nothing(operation, kernel, products, capsys):
    """Three products of fragments each, on 7.5 in halves; a third of them where factors are rounded."""
    assert cuda_check.main(["--operation", operation, "--capability", "7.5", "--capability", "8.0"]) == 0
    told = re.findall(rf"{kernel}_kernel.* (\d+) of tensor cores", capsys.readouterr().out)
    assert sorted(map(int, told)) == [products, 2 * products, 3 * products, 6 * products]


def test_without_a_compiler_it_is_skipped(monkeypatch, capsys):
    monkeypatch.setattr(cuda_check, "find_nvcc", lambda: None)
    assert cuda_check.main([]) == 0 and capsys.readouterr().out.startswith("skipped: ")
