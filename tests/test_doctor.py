"""`--mode doctor`: each line is ok or has a remedy, whatever else fails."""

import importlib.metadata
import os
import subprocess
import sys

import pytest
from cuda_machines import computes, facts, takes_its_process_along, toolkit
from runs import ROOT

from models.commands import doctor, doctor_operations
from models.commands.doctor_operations import gradients
from models.commands.operation_examples import EXAMPLES, example, kernels
from models.machine.backend import jt
from models.machine.cuda import home as cuda_home
from models.machine.cuda.choice import conclude
from models.ops.source import REFERENCE, use


def lines_of(check):
    found = list(check())
    assert all("\n" not in line.text() for line in found)
    return found


# the system


@pytest.mark.slow
def test_this_machine_is_fit():
    checks = (doctor.interpreter, doctor.packages, doctor.compiler, doctor.cache)
    assert [line.text() for check in checks for line in lines_of(check) if not line.is_ok] == []


@pytest.mark.parametrize(("version", "is_ok"), [("1.26", True), ("1.26.4", True), ("1.9", False), ("2.0rc1", False)])
def test_versions_are_compared_by_their_numbers(version, is_ok, monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text("numpy>=1.26,<2\n")
    monkeypatch.setattr(doctor, "REQUIREMENTS_FILE", tmp_path / "requirements.txt")
    monkeypatch.setattr(doctor, "MODULES", {})  # none is imported
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    _, *wrong = lines_of(doctor.packages)
    assert [line.figure for line in wrong] == ([] if is_ok else [f"{version}, not <2,>=1.26"])


def test_a_requirement_of_another_python_is_left_out(monkeypatch, tmp_path):
    lines = ('a>=1,<2; python_version < "3"', 'b>=2.1; python_version >= "3"', "c")
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    monkeypatch.setattr(doctor, "REQUIREMENTS_FILE", tmp_path / "requirements.txt")
    assert [line.name for line in lines_of(doctor.packages)[1:]] == ["b", "c"]


# CUDA


def test_a_machine_without_a_card_is_well_and_its_toolkit_is_told_of(monkeypatch):
    have = facts(None, toolkit())
    monkeypatch.setattr(cuda_home, "concluded", lambda gpu: (have, conclude(have, gpu)))
    monkeypatch.setattr(doctor.detect, "toolkits", lambda *arguments: [toolkit()])
    found = lines_of(lambda: doctor.cuda("auto", 7))
    assert all(line.is_ok for line in found) and any("not used: no GPU" in line.figure for line in found)


# what is computed


def test_gradients_of_this_machine_are_those_of_numpy():
    assert [text for _, text, remedy in gradients() if remedy] == []
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


@pytest.mark.parametrize("name", ["adam", "readings", "composite", "march", "patch_costs"])
def test_native_forms_are_those_of_their_references(name):
    if kernels()[name].is_native:
        error, count = doctor_operations.difference(kernels()[name], example(name, 1))
        assert error <= doctor_operations.MOST_DIFFERENCE and count > 0


# all of it


@pytest.mark.slow
@pytest.mark.parametrize(("task", "is_ok"), [(computes, True), (takes_its_process_along, False)])
def test_a_process_that_ends_is_a_line_and_the_others_are_told(monkeypatch, capsys, task, is_ok):
    monkeypatch.setattr(doctor, "compute", task)
    told = []
    assert doctor.examine("cpu", 0, told.append) is is_ok
    assert [line for line in told if line.name == "computed"] and told[0].name == "Python"
    if not is_ok:
        assert "status -6" in told[-1].figure and capsys.readouterr().out.splitlines() == ["first words", "last words"]


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
