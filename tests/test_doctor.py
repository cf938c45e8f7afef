"""`--mode doctor`: each line is ok or has a remedy, whatever else fails."""

import importlib.metadata
import os
import subprocess
import sys
import time

import pytest
from cuda_machines import computes, facts, takes_its_process_along, toolkit
from runs import ROOT

from models.commands.machine_checks import examine, lines, operations, system
from models.commands.machine_checks.examples import EXAMPLES, example, kernels
from models.commands.machine_checks.operations import gradients
from models.machine.backend import jt
from models.machine.cuda import start
from models.machine.cuda.choice import conclude
from models.ops.kernel import REFERENCE, use


def lines_of(check):
    found = list(check())
    assert all("\n" not in line.text() for line in found)
    return found


# the system


@pytest.mark.slow
def test_this_machine_is_fit():
    checks = (system.interpreter, system.packages, system.compiler, system.cache)
    assert [line.text() for check in checks for line in lines_of(check) if not line.is_ok] == []


@pytest.mark.parametrize(("version", "is_ok"), [("1.26", True), ("1.26.4", True), ("1.9", False), ("2.0rc1", False)])
def test_versions_are_compared_by_their_numbers(version, is_ok, monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text("numpy>=1.26,<2\n")
    monkeypatch.setattr(system, "REQUIREMENTS", tmp_path / "requirements.txt")
    monkeypatch.setattr(system, "MODULES", {})  # none is imported
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    _, *wrong = lines_of(system.packages)
    assert [line.found for line in wrong] == ([] if is_ok else [f"{version}, not >=1.26,<2"])


def test_a_requirement_of_another_python_is_left_out(monkeypatch, tmp_path):
    lines = ('a>=1,<2; python_version < "3.13"', 'b>=2.1; python_version >= "3.13"', "c")
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    monkeypatch.setattr(system, "REQUIREMENTS", tmp_path / "requirements.txt")
    for version, name in (("3.12.9", "a"), ("3.13.0", "b")):
        monkeypatch.setattr(system.platform, "python_version", lambda version=version: version)
        assert [found for found, _ in system._required()] == [name, "c"]


# CUDA


def test_a_machine_without_a_card_is_well_and_its_toolkit_is_told_of(monkeypatch):
    have = facts(None, toolkit())
    monkeypatch.setattr(start, "concluded", lambda gpu: (have, conclude(have, gpu)))
    monkeypatch.setattr(system.detect, "toolkits", lambda *arguments: [toolkit()])
    found = lines_of(lambda: system.cuda("auto", 7))
    assert all(line.is_ok for line in found) and any("not used: no GPU" in line.found for line in found)


# what is computed


def test_gradients_of_this_machine_are_those_of_numpy():
    assert [line.text() for line in lines_of(gradients) if not line.is_ok] == []
    assert set(kernels()) == set(EXAMPLES)  # every operation has an example


def test_references_multiply_batches_of_equal_length_as_a_card_asks(monkeypatch):
    """cuBLAS's product of batches, which Jittor takes on a card for these, repeats no matrix."""
    multiply = jt.matmul

    def checked(a, b):
        assert len(a.shape) < 3 or len(a.shape) != len(b.shape) or a.shape[:-2] == b.shape[:-2], (a.shape, b.shape)
        return multiply(a, b)

    monkeypatch.setattr(jt, "matmul", checked)
    for name in EXAMPLES:
        made = example(name)
        with use(REFERENCE):
            kernels()[name](*made.arguments)


@pytest.mark.parametrize("name", ["adam", "readings", "packed_sum", "march", "patch_costs"])
def test_native_forms_are_those_of_their_references(name):
    if kernels()[name].is_native:
        error, count = operations.difference(kernels()[name], example(name, 1))
        assert error <= operations.BOUND and count > 0


# all of it


@pytest.mark.slow
@pytest.mark.parametrize(("task", "is_ok"), [(computes, True), (takes_its_process_along, False)])
def test_a_process_that_ends_is_a_line_and_the_others_are_told(monkeypatch, capsys, task, is_ok):
    monkeypatch.setattr(examine, "compute", task)
    told = []
    assert examine.examine("cpu", 0, told.append) is is_ok
    assert [line for line in told if line.name == "computed"] and told[0].name == "Python"
    if not is_ok:
        assert "status -6" in told[-1].found and capsys.readouterr().out.splitlines() == ["first words", "last words"]


@pytest.mark.cli
def test_without_packages_the_command_names_them_and_tells_the_other_lines(tmp_path):
    gone = ("cv2", "numpy")
    for name in gone:
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n")
    call = [sys.executable, str(ROOT / "exp_runner.py"), "--mode", "doctor", "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, cwd=ROOT)
    wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
    assert done.returncode == 1 and done.stderr == "" and "ok     C++ compiler" in done.stdout
    assert all(any(f"no {name}" in line and "pip install" in line for line in wrong) for name in gone)
    jittor = next(line for line in wrong if line.startswith("WRONG  Jittor"))
    assert jittor.endswith("(no numpy): pip install -r requirements.txt")


# what is said of compiling, on stderr: enough at the first time, nothing later


def test_what_is_compiled_is_told_once_for_each_stage_and_counted(monkeypatch, capsys, tmp_path):
    now = time.time()
    monkeypatch.setattr(lines.time, "time", lambda: now)
    watch = lines.Compiling()
    for name, age in (("old", 60), ("new", -1), ("newer", -1)):
        watch.begin(lines.CompileStage(f"op {name}", str(tmp_path)))
        for ending in ("cc", "so"):
            (tmp_path / f"{name}.{ending}").touch()
            os.utime(tmp_path / f"{name}.{ending}", (now - age, now - age))
        now += lines.INTERVAL_SECONDS
        watch.look()
    watch.finish()
    first, *stages, last = capsys.readouterr().err.splitlines()
    assert first == lines.FIRST and stages == ["  compiling for op new", "  compiling for op newer"]
    assert last.startswith("  2 operations compiled in ")
