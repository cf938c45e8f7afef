"""What of the tests runs on a card, in which forms, and on no other device."""

import re
import sys

import pytest
from runs import ROOT

from benchmarks import on_device
from benchmarks.gpu_run import TESTS
from data.errors import UserError


def test_the_tests_for_a_card_are_there_and_emulate_nothing_themselves():
    assert len(TESTS) > 10
    for name in TESTS:
        text = (ROOT / "tests" / f"test_{name}.py").read_text()
        assert not re.search(r"from emulation|emulated\(|numpy_code|cuda_machines", text), name


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
