"""`make cuda-check` without a GPU: what is compiled, and what is read from the machine code."""

import shutil

import pytest
from forms import functions

from benchmarks import cuda_check


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


def test_without_a_compiler_it_is_skipped(monkeypatch, capsys):
    monkeypatch.setattr(cuda_check, "_nvcc", lambda: None)
    assert cuda_check.main([]) == 0 and capsys.readouterr().out.startswith("skipped: ")
