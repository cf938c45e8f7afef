"""`make cuda-check` without a GPU: what is compiled, and what is read from the machine code."""

import dataclasses
import shutil

import pytest
from emulation import functions

from benchmarks import cuda_check
from data.errors import UserError
from models.ops import later
from models.ops.source import CUDA

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")


def test_every_function_that_python_calls_is_compiled():
    found = cuda_check.sources()
    assert len(found) > 20
    for source in found.values():
        used = cuda_check.program(source).rpartition("void *used[]")[2]
        assert functions(source) and all(f"&neus::{name}<" in used for name in functions(source))


@needs_nvcc
def test_an_operation_is_told_with_registers_and_instructions(capsys):
    assert cuda_check.main(["--operation", "weighted_means", "--capability", "7.5", "--capability", "9.0"]) == 0
    told = capsys.readouterr().out
    assert told.count("ok     weighted_means for ") == 2 and "0 bytes spilled" in told and " instructions" in told
    with pytest.raises(UserError, match="--capability 99.9: "):
        cuda_check.main(["--operation", "weighted_means", "--capability", "99.9"])


@needs_nvcc
def test_what_does_not_compile_is_told_with_the_message(monkeypatch, tmp_path, capsys):
    (tmp_path / CUDA).mkdir()
    (tmp_path / CUDA / "later.h").write_text("inline void copy_later(const HostCopy &is, long) { wrong(); }\n")
    wrong = dataclasses.replace(later.SOURCE, folder=tmp_path)
    monkeypatch.setattr(cuda_check, "sources", lambda: {"later": wrong})
    assert cuda_check.main(["--capability", "9.0"]) == 1
    assert "WRONG  later for 9.0 does not compile" in capsys.readouterr().out


def test_without_a_compiler_it_is_skipped(monkeypatch, capsys):
    monkeypatch.setattr(cuda_check, "_nvcc", lambda: None)
    assert cuda_check.main([]) == 0 and capsys.readouterr().out.startswith("skipped: ")
