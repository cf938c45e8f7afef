"""What of the tests runs on a card, in which forms, and on no other device."""

import re
import sys
from types import SimpleNamespace

import forms
import pytest
from runs import ROOT

from benchmarks import cuda_check_tests, on_device
from data.errors import UserError
from models.ops.kernel import NATIVE


def test_the_tests_for_a_card_are_there_and_emulate_nothing_themselves():
    names = cuda_check_tests.listed()
    assert len(names) > 10
    for name in names:
        text = (ROOT / "tests" / f"test_{name}.py").read_text()
        assert not re.search(r"from emulation|emulated\(|numpy_code|cuda_machines", text), name


def test_on_a_card_nothing_is_emulated():
    assert forms.emulated_on("cuda") == () and len(forms.emulated_on("cpu")) == 3
    with forms.in_form(NATIVE) as called:
        assert called is None


def test_a_program_runs_on_the_device_it_is_given_or_not_at_all(monkeypatch, capsys, tmp_path):
    program = tmp_path / "it.py"
    program.write_text("import sys\nprint('ran with', sys.argv[1:])")
    monkeypatch.setattr(sys, "argv", [])
    on_device.main(["cpu", str(program), "a", "b"])
    assert "device cpu" in (told := capsys.readouterr().out) and "ran with ['a', 'b']" in told

    def refuse(device):
        raise UserError("no card: use --device cpu")

    monkeypatch.setattr(on_device.backend, "select", refuse)
    with pytest.raises(SystemExit, match="error: no card"):
        on_device.main(["cuda", str(program)])
    assert "ran" not in capsys.readouterr().out


def test_of_what_fails_without_a_card_only_values_are_expected():
    failures = cuda_check_tests.Failures()
    for error in (
        AssertionError("1 == 2"),
        ModuleNotFoundError("No module named 'cupy'"),
        RuntimeError("its\nmore"),
    ):
        told = SimpleNamespace(value=error, typename=type(error).__name__)
        failures.pytest_runtest_makereport(SimpleNamespace(nodeid="a::b"), SimpleNamespace(excinfo=told))
    failures.pytest_runtest_makereport(SimpleNamespace(nodeid="a::c"), SimpleNamespace(excinfo=None))
    assert failures.found == ["a::b: ModuleNotFoundError: No module named 'cupy'", "a::b: RuntimeError: its"]
