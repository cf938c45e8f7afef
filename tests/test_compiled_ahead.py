"""The process that compiles while cameras are estimated: what it runs, and that it ends with its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.errors import UserError
from models.commands import reconstruction as ahead
from models.commands.arguments import parse_arguments

CONF = Path("confs/fast.conf")
FLAGS = ["--images", "photos", "--conf", str(CONF), "--set", "model.photographs.exposure=true"]
ARGUMENTS = parse_arguments(["--mode", "reconstruct", *FLAGS])
WAITS = "import pathlib, sys, time; pathlib.Path(sys.argv[1][3:-3]).touch(); time.sleep(600)"
ENDS = "import pathlib, sys; open(sys.argv[1][3:-3], 'a').write('x')"


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A file that the child writes; its name is all that its commands say, and Jittor's home is empty."""
    monkeypatch.setattr(ahead, "SCENE", tmp_path)
    monkeypatch.setattr(ahead, "jittor_home", lambda: str(tmp_path))
    monkeypatch.setattr(ahead, "_commands", lambda *given: [[str(tmp_path / "ran")]])
    return tmp_path / "ran"


def until(is_true):
    """Whether it becomes true within a minute, of which a busy machine needs much."""
    end = time.monotonic() + 60
    while not is_true() and time.monotonic() < end:
        time.sleep(0.02)
    return is_true()


def children():
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return path.read_text().split()


def test_its_commands_are_valid_and_keep_the_recipe(tmp_path):
    modes = []
    for words in ahead._commands(ARGUMENTS, False, tmp_path):
        parsed = parse_arguments(words)
        modes.append(parsed.command.name)
        assert {"model.photographs.exposure=true", "train.mask_weight=0"} <= set(parsed.overrides)
        assert f"general.base_exp_dir={tmp_path}" in parsed.overrides and parsed.conf == CONF
    assert modes == ["train", "validate_mesh", "evaluate"]


@pytest.mark.parametrize(("flag", "folder", "is_masked"), [("", "", False), ("box", "", True), ("", "masks", True)])
def test_masks_beside_the_photographs_choose_the_recipe(tmp_path, flag, folder, is_masked):
    images = tmp_path / "images"
    for path in (images, tmp_path / folder):
        path.mkdir(exist_ok=True)
    assert ahead._has_masks({"images": str(images), "masks": flag}) == is_masked


def test_it_is_waited_for_and_runs_once(ran, monkeypatch):
    monkeypatch.setattr(ahead, "MODES_PROGRAM", ENDS)
    for _ in range(2):
        with ahead.compile_ahead(ARGUMENTS, False):
            pass
        assert ran.read_text() == "x"
    monkeypatch.setattr(ahead, "MODES_PROGRAM", f"{ENDS}; sys.exit(1)")
    monkeypatch.setattr(ahead, "STEPS", 65)
    monkeypatch.setattr(ahead, "_key", lambda words: "other")
    for count in (2, 3):  # without success there is no mark
        with ahead.compile_ahead(ARGUMENTS, False):
            pass
        assert ran.read_text() == "x" * count


def test_waiting_for_it_is_told(ran, monkeypatch, capsys):
    monkeypatch.setattr(ahead, "MODES_PROGRAM", f"import time; time.sleep(1); {ENDS}")
    for words in ("compiling what training and mesh use", ""):  # the second time nothing is left to compile
        with ahead.compile_ahead(ARGUMENTS, False):
            pass
        told = "".join(capsys.readouterr())
        assert words in told and bool(told) == bool(words)


def test_an_exception_ends_it(ran, monkeypatch):
    monkeypatch.setattr(ahead, "MODES_PROGRAM", WAITS)
    before = children()
    with pytest.raises(UserError), ahead.compile_ahead(ARGUMENTS, False):
        assert until(ran.exists) and children() != before
        raise UserError("no cameras")
    assert children() == before


def test_it_ends_with_a_parent_that_is_killed(tmp_path):
    program = f"""
import sys; sys.path.insert(0, {str(Path.cwd())!r})
from models.commands import reconstruction as ahead
work = "open(json.loads(sys.argv[1])[0], 'w').write(str(os.getpid())); time.sleep(600)"
ahead.MODES_PROGRAM = f"import json, os, sys, time; {{work}}"
with ahead._started([{str(tmp_path / "pid")!r}]) as child:
    child.wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    assert until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    child = Path(f"/proc/{(tmp_path / 'pid').read_text()}")
    assert int((child / "stat").read_text().split()[18]) >= min(19, os.nice(0) + ahead.NICE)  # its priority
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert until(lambda: not child.exists() or (child / "stat").read_text().split()[2] == "Z")
