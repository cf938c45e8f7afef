"""A preparation survives SIGKILL; tests/kill_prepare.py does the same 30 times by itself."""

import subprocess
import sys

import kill_prepare
import pytest
from kill_prepare import CAMERA_FILE, STEPS, WORK

pytestmark = pytest.mark.alone

KILLS = 2


@pytest.fixture(scope="module")
def tortured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tortured")
    program = [sys.executable, kill_prepare.__file__, "--kills", str(KILLS), "--folder", str(folder)]
    return folder, subprocess.run(program, capture_output=True, text=True, timeout=600)


def test_after_a_kill_the_next_call_goes_on(tortured):
    _, done = tortured
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{KILLS} kills (")


def test_the_harness_notices_a_scene_that_is_not_whole_and_a_step_that_was_stopped(tortured):
    folder, _ = tortured
    assert kill_prepare.fault_of(folder) == [] and kill_prepare.stopped_in(folder / "scene" / WORK) == ""
    (folder / "scene" / "image" / "001.png").unlink()
    assert len(kill_prepare.fault_of(folder)) == 1
    (folder / "scene" / CAMERA_FILE).unlink()
    assert kill_prepare.fault_of(folder) == [], "without its cameras it is no scene"
    (folder / "scene" / WORK / f"{STEPS[1]}.json").write_text('{"key": "x"}')
    assert kill_prepare.stopped_in(folder / "scene" / WORK) == STEPS[1]
