"""Printed command lines work where the user is."""

import shlex

import pytest

from models.commands.arguments import parse_arguments
from models.commands.command import command_line, scene_flags
from models.config.program import PROGRAM


def test_a_command_names_the_program_from_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(PROGRAM.parent)
    assert command_line(["--case", "a b"]) == "python exp_runner.py --case 'a b'"
    monkeypatch.chdir(PROGRAM.parent.parent)
    assert command_line([]) == f"python {PROGRAM.parent.name}/exp_runner.py"
    monkeypatch.chdir(tmp_path)
    assert command_line([]) == shlex.join(["python", str(PROGRAM)])


@pytest.mark.parametrize("left_out", ["", "dataset.roi"])
def test_a_command_keeps_what_was_set(left_out):
    given = ["--conf", "confs/fast.conf", "--case", "a", "--device", "cpu"]
    given += ["--set", "train.end_iter=7", "--roi", "0 0 1 2", "--set=-x=1"]
    words = scene_flags(parsed := parse_arguments(given), parsed.conf, left_out)
    again = parse_arguments(words)
    assert (again.conf, again.case, again.device) == (parsed.conf, parsed.case, parsed.device)
    kept = [text for text in parsed.overrides if not left_out or not text.startswith(left_out)]
    assert list(again.overrides) == kept and len(kept) == (2 if left_out else 3)
