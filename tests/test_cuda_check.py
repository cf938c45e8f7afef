"""What `make cuda-check` says, with and without what it needs; and a pretended driver, asked as a real one."""

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from cuda_machines import toolkit

from benchmarks import cuda_check
from benchmarks.pretend import build
from models.machine.cuda import driver as drivers
from models.machine.cuda.conclude import conclude
from models.machine.cuda.facts import Facts

GOOD = {"vars": [66, 66], "ops": [0, 0], "host_ms": 4.0, "kernels": 300.0, "compiled": 3, "compile_seconds": 12.0}
GOOD |= {"first_seconds": 20.0, "allocations": 0}
RELEASED = {"host_ms": 5.0, "operations": 28, "kernels": 100.0, "pool_mib": 700.0, "allocations": 0}


@pytest.fixture
def check(monkeypatch, tmp_path):
    """A function that checks with these toolkits, pip answering that, and processes answering that."""

    def run(toolkits, arguments=(), answers=(), pip=1):
        left = list(answers)
        monkeypatch.setattr(cuda_check.search, "toolkits", lambda *given: toolkits)
        monkeypatch.setattr(cuda_check, "_pretended", lambda *given: None)
        monkeypatch.setattr(cuda_check, "_worker", lambda *given: left.pop(0))
        for name in ("_adopt_orphans", "_bury_orphans"):  # the orphans of other tests are theirs
            monkeypatch.setattr(cuda_check, name, lambda: None)
        monkeypatch.setattr(cuda_check, "jittor_home", lambda: str(tmp_path))
        (tmp_path / ".cache" / "jittor").mkdir(parents=True, exist_ok=True)
        ended = SimpleNamespace(returncode=pip, stderr="no network\n")
        monkeypatch.setattr(cuda_check.subprocess, "run", lambda *given, **named: ended)
        return cuda_check.main(list(arguments))

    return run


@pytest.mark.parametrize("toolkits", [[], [toolkit((11, 8))], [toolkit((14, 0))]])
def test_without_an_nvcc_it_is_skipped_with_the_reason(check, capsys, toolkits):
    assert check(toolkits) == 0 and "skipped: there is no nvcc" in capsys.readouterr().out


def test_headers_that_cannot_be_fetched_are_a_reason_to_skip(check, capsys):
    assert check([toolkit(without=("cublas_v2.h",))]) == 0
    assert "skipped: the headers of" in (text := capsys.readouterr().out) and "no network" in text


def test_a_conf_that_compiles_and_leaves_nothing_behind_is_well(check, capsys):
    assert check([toolkit()], ["--conf", "debug", "--no-host"], [GOOD]) == 0
    assert "ok     debug: 30 steps, variables 66, operations 0, 4.0 ms" in capsys.readouterr().out


@pytest.mark.parametrize("bad", [GOOD | {"vars": [66, 70]}, GOOD | {"ops": [0, 1]}, {"error": "it does not compile"}])
def test_a_conf_that_does_not_is_named_and_the_others_are_checked(check, capsys, bad):
    arguments = ["--conf", "fast", "--conf", "debug", "--no-host"]
    assert check([toolkit()], arguments, [bad, GOOD]) == 1
    text = capsys.readouterr().out
    assert "WRONG  fast: " in text and "ok     debug" in text and "not well: fast" in text


def test_targets_of_the_released_size_are_told(check, capsys):
    plain = RELEASED | {"host_ms": 25.0, "operations": 500}
    assert check([toolkit()], ["--conf", "debug"], [GOOD, RELEASED, plain]) == 0
    text = capsys.readouterr().out
    assert "target host time <= 0.25 of plain (0.20): reached" in text and "operations <= 30: reached" in text
    check([toolkit()], ["--conf", "debug", "--no-plain"], [GOOD, RELEASED | {"operations": 480}])
    assert "target operations <= 30: missed" in (text := capsys.readouterr().out) and "of plain" not in text


def test_a_first_start_is_weighed_with_all_that_it_compiles(check, capsys):
    first = {"compiled": 34, "compile_seconds": 100.0}
    assert check([toolkit()], ["--first", "--one"], [first]) == 0
    text = capsys.readouterr().out
    assert "100 in the step, 34 operations" in text and "target 400 processor seconds: reached" in text
    assert check([toolkit()], ["--first"], [{"error": "it does not compile"}]) == 1


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize(("newest", "capability"), [(13000, 90), (12040, 75)])
def test_a_pretended_driver_is_asked_as_a_real_one(monkeypatch, tmp_path, newest, capability):
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", build.SOURCES / "driver.c", "-o", library], check=True)
    monkeypatch.setattr(drivers, "is_installed", lambda: True)
    answers = {"PRETEND_DRIVER": str(newest), "PRETEND_CAPABILITY": str(capability)}
    found = drivers.ask(os.environ | {"LD_LIBRARY_PATH": str(tmp_path)} | answers)
    assert found.cuda == (newest // 1000, newest % 1000 // 10) and found.problem == ""
    assert [(card.name, card.capability, card.memory) for card in found.cards] == [("pretend card", capability, 2**34)]
    plan = conclude(Facts(found, (toolkit((newest // 1000, 0)),))).plan
    assert plan.codes == (capability,)


def test_what_the_pretended_runtime_defines_is_not_generated_too():
    written = set(build.DEFINED.findall((build.SOURCES / "runtime.c").read_text(encoding="utf-8")))
    assert {"cudaMalloc", "cudaMemcpy", "cudaGetDeviceProperties", "cudaLaunchKernel"} <= written
