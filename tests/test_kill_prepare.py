"""A preparation survives SIGKILL; `python tests/test_kill_prepare.py 30` kills 30 times.

Photographs of a rendered corner are prepared. Each life is killed at a random moment of what a whole one takes, and the
next one goes on in what it left, or starts from nothing; a finished scene is replaced, or loses its files. After every
kill a scene that has its camera file must be whole, and a life that is not disturbed must finish with the true cameras.
Each life is a fork of a process that has loaded the program, so that a kill costs no start.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cv2
import pytest
from preparations import compare, poses_of, read, request
from rendered_photographs import poses, write_photographs

from data.errors import UserError
from data.io.files import remove
from data.prepare.pipeline import prepare
from data.prepare.products import CAMERA_FILE, PRODUCTS

N_VIEWS = 4
FRESH = 0.4  # of the lives start from nothing, wherever the one before was killed
FOREVER = 1e9


def live(folder, overwrite, seconds):
    """A life in a forked process, killed after so many seconds; its status, 0 where the scene is ready."""
    child = os.fork()
    if not child:
        status = 70
        try:
            prepare(request(folder, overwrite=overwrite), str)
            status = 0
        except UserError as error:
            sys.stderr.write(f"{error}\n")
        finally:
            os._exit(status)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def assert_whole(scene):
    """Where there is a scene it has its photographs and points, and the true cameras."""
    if (scene / CAMERA_FILE).exists():
        found, (degrees, _) = read(scene), compare(poses(N_VIEWS), poses_of(scene))
        assert found.n_views == N_VIEWS and found.points is not None and degrees.max() < 0.5


def start_over(scene, generator):
    """What a finished scene becomes before the next life; returns whether that is to overwrite."""
    is_replaced = (scene / CAMERA_FILE).exists() and generator.random() < 0.4
    for name in PRODUCTS if (scene / CAMERA_FILE).exists() and not is_replaced else ():
        remove(scene / name)
    return is_replaced


def torture(folder, kills):
    """Kill preparations in `folder` that many times, then let one end."""
    cv2.setNumThreads(1)  # threads do not survive a fork
    generator, scene, overwrite, killed, finished = random.Random(0), folder / "scene", False, 0, 0
    write_photographs(folder / "photos", N_VIEWS)
    begin = time.monotonic()
    assert live(folder, False, FOREVER) == 0
    seconds = time.monotonic() - begin
    assert_whole(scene)
    while killed < kills and finished < 10 * kills:
        if generator.random() < FRESH:  # so that every step has its kills
            remove(scene)
        overwrite = start_over(scene, generator) or (overwrite and generator.random() < 0.5)
        status = live(folder, overwrite, generator.uniform(0.0, seconds))
        assert status in (0, -signal.SIGKILL)
        killed, finished = killed + (status != 0), finished + (status == 0)
        assert_whole(scene)
    assert live(folder, overwrite, FOREVER) == 0
    assert_whole(scene)
    assert [path.name for path in scene.glob(".*") if path.is_file()] == []
    print(f"{killed} kills, {finished} lives were over before")


@pytest.mark.alone
def test_after_a_kill_the_next_call_goes_on():
    done = subprocess.run([sys.executable, __file__, "2"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout.startswith("2 kills"), done.stdout + done.stderr


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        torture(Path(name), int(sys.argv[1]))
