"""For tests of hostile files: a limit of time, and a scene of Bundler."""

import contextlib
import signal

import numpy as np

from data.io.images import write_image
from data.scenes.config import DatasetConfig
from data.scenes.readers import READERS, recognise


@contextlib.contextmanager
def ended_soon():
    """The body ends; ten seconds are a thousand times what it takes."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def bundler(folder, points="0 0 0\n1 2 3\n0\n", names="a.png 0 20.5\nb.png\n", n_points=1):
    (folder / "images").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        write_image(folder / "images" / name, np.zeros((16, 20, 3), np.uint8))
    cameras = "20 0 0\n1 0 0\n0 1 0\n0 0 1\n0 0 -3\n" * 2
    (folder / "bundle.out").write_text(f"# Bundle file v0.3\n2 {n_points}\n{cameras}{points}")
    (folder / "list.txt").write_text(names)


def read_scene(folder):
    return READERS[recognise(folder)].read(folder, DatasetConfig(str(folder), "cameras_sphere.npz", "x.npz"))
