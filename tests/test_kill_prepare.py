"""A preparation survives SIGKILL; tests/kill_prepare.py does the same 30 times by itself."""

import subprocess
import sys

import kill_prepare
import pytest

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
