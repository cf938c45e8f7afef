"""`--mode doctor`: each line is ok or has a remedy, whatever else fails."""

import importlib.metadata
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from cuda_machines import computes, facts, takes_its_process_along, toolkit
from runs import ROOT

from models.doctor import cuda, examine, operations, system
from models.doctor.gradients import gradients
from models.machine.backend import jt
from models.machine.cuda import start
from models.machine.cuda.conclude import conclude
from models.ops.examples import MAKERS, kernels
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


def test_a_package_that_is_installed_and_cannot_be_imported_is_named_with_the_command(monkeypatch, tmp_path):
    for name, words in {
        "trimesh": "raise ImportError('libGL.so.1 is missing')",
        "igl": "import os; os.abort()",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(words)
    monkeypatch.syspath_prepend(tmp_path)
    _, *wrong = lines_of(system.packages)
    assert [line.name for line in wrong] == ["trimesh", "libigl"]
    assert "libGL.so.1" in wrong[0].found and "status -6" in wrong[1].found
    assert wrong[0].remedy == 'pip install --force-reinstall --no-deps "trimesh>=4.5,<6"'


def test_every_package_that_the_program_imports_is_tried():
    top = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
    files = [path for room in ("data", "models") for path in (ROOT / room).rglob("*.py")]
    imported = {name for path in files for name in top.findall(path.read_text(encoding="utf-8"))}
    brought = importlib.metadata.packages_distributions()
    listed = system.REQUIREMENTS.read_text(encoding="utf-8").lower()
    required = set(re.findall(r"^[\w-]+", listed, re.MULTILINE)) - {"jittor"}
    needed = {name for name in imported if required & {owner.lower() for owner in brought.get(name, ())}}
    optional = {"viser", "mpi4py"}  # of --mode view and of several processes, which say so themselves
    assert needed - optional <= set(system.MODULES.values()) and {"cv2", "pyhocon", "trimesh"} <= needed


@pytest.mark.parametrize(
    ("version", "bounds", "is_within"),
    [
        ("1.26.4", ">=1.26,<2", True),
        ("1.26", ">=1.26,<2", True),
        ("2", ">=1.26,<2", False),
        ("1.9", ">=1.10", False),
        ("1.3.11.0", ">=1.3.11,<1.3.12", True),
        ("4.0.0rc1", "<4", False),
        ("2023.2.0", "==2023.2.0", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version, bounds, is_within, monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text(f"numpy{bounds}\n")
    monkeypatch.setattr(system, "REQUIREMENTS", tmp_path / "requirements.txt")
    monkeypatch.setattr(system, "MODULES", {})  # none is imported
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    _, *wrong = lines_of(system.packages)
    assert [line.found for line in wrong] == ([] if is_within else [f"{version}, not {bounds}"])


# CUDA


@pytest.fixture
def machine(monkeypatch):
    """A function that gives this machine other facts and returns the lines of CUDA."""

    def of(found, *toolkits, device="auto", gpu=0):
        have = facts(found, *toolkits)
        monkeypatch.setattr(start, "concluded", lambda gpu: (have, conclude(have, gpu)))
        monkeypatch.setattr(cuda.search, "toolkits", lambda *arguments: list(toolkits))
        monkeypatch.setattr(cuda.backend, "cuda_ready", lambda gpu: start.Ready(None, "no home: free some space"))
        return lines_of(lambda: cuda.cuda(device, gpu))

    return of


def test_a_machine_without_a_card_is_well_and_its_toolkit_is_told_of(machine):
    found = machine(None, toolkit())
    assert all(line.is_ok for line in found) and any("not used: no GPU" in line.found for line in found)
    told = machine(None, gpu=7)[-1]
    assert told.is_ok and told.found.endswith("the CPU is used and --gpu 7 is ignored")


# what is computed


def test_gradients_of_this_machine_are_those_of_numpy():
    assert [line.text() for line in lines_of(gradients) if not line.is_ok] == []


def test_every_operation_has_an_example():
    assert set(kernels()) == set(MAKERS)


def test_references_multiply_batches_of_equal_length_as_a_card_asks(monkeypatch):
    """cuBLAS's product of batches, which Jittor takes on a card for these, repeats no matrix."""
    multiply = jt.matmul

    def checked(a, b):
        assert len(a.shape) < 3 or len(a.shape) != len(b.shape) or a.shape[:-2] == b.shape[:-2], (a.shape, b.shape)
        return multiply(a, b)

    monkeypatch.setattr(jt, "matmul", checked)
    for name in MAKERS:
        example = MAKERS[name](np.random.default_rng(0))
        with use(REFERENCE):
            example.kernel(*example.arguments)


@pytest.mark.parametrize("name", ["adam", "readings", "packed_sum", "march", "patch_costs"])
def test_native_forms_are_those_of_their_references(name):
    if kernels()[name].is_native:
        error, count = operations.difference(MAKERS[name](np.random.default_rng(1)))
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
def test_the_command_ends_with_status_one_where_jittor_cannot_be_built():
    call = [sys.executable, str(ROOT / "exp_runner.py"), "--mode", "doctor", "--device", "cpu"]
    ended = subprocess.run(
        call, env=os.environ | {"cc_path": "no-such-compiler"}, capture_output=True, text=True, cwd=ROOT
    )
    assert ended.returncode == 1, ended.stderr
    wrong = [line for line in ended.stdout.splitlines() if line.startswith("WRONG")]
    assert any("unset cc_path" in line for line in wrong) and "ok     memory" in ended.stdout


@pytest.mark.cli
def test_without_packages_the_command_names_them_and_tells_the_other_lines(tmp_path):
    gone = ("cv2", "pyhocon", "trimesh", "numpy")
    for name in gone:
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n")
    call = [sys.executable, str(ROOT / "exp_runner.py"), "--mode", "doctor", "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(call, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 1 and ended.stderr == ""
    wrong = [line for line in ended.stdout.splitlines() if line.startswith("WRONG")]
    assert all(any(f"no {name}" in line and "pip install" in line for line in wrong) for name in gone)
    assert "ok     memory" in ended.stdout and "ok     C++ compiler" in ended.stdout
    jittor = next(line for line in wrong if line.startswith("WRONG  Jittor"))
    assert jittor.endswith("(no numpy): pip install -r requirements.txt")
