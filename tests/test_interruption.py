"""A Ctrl-C is never lost."""

import subprocess
import sys

import pytest
from runs import ROOT

pytestmark = pytest.mark.cli

IN_A_DELETION = """
import os, signal, time
from data.io.interruption import keep_interruptions
keep_interruptions()
class Deleted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10))
class Broken:
    def __del__(self):
        raise ValueError("of another kind")
Broken()
try:
    Deleted()
    for _ in range(600):
        time.sleep(0.1)
    print("lost")
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interruption_of_a_deletion_comes_again():
    ended = subprocess.run([sys.executable, "-c", IN_A_DELETION], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "heard" and "KeyboardInterrupt" not in ended.stderr
    assert "of another kind" in ended.stderr
