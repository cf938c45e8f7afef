"""Copies of the bundled scene's photographs under the names of other programs, and what is read from them."""

import shutil
from pathlib import Path

from data.config import DatasetConfig
from data.readers import READERS
from data.readers.detect import recognise
from data.scenes.preprocess import preprocess

FOLDER = Path(__file__).parents[1] / "data" / "demo"
VIEWS = 10
NAMES = [f"DJI_{number} (40{number}).png" for number in range(VIEWS)]


def true_scene():
    conf = DatasetConfig(str(FOLDER), "cameras_sphere.npz", "cameras_sphere.npz")
    return READERS["neus"].read(FOLDER, conf)


def read(folder, **more):
    """(parsed, scene) of a folder, its format recognised."""
    conf = DatasetConfig(str(folder), "cameras_sphere.npz", "cameras_sphere.npz", **more)
    parsed = READERS[recognise(folder)].read(folder, conf)
    return parsed, preprocess(parsed, parsed.images, conf)


def photographs(folder, names, inner="images"):
    """Copies of the first photographs under `names`; returns their true posed images."""
    (folder / inner).mkdir(parents=True)
    posed = true_scene().images[: len(names)]
    for image, name in zip(posed, names, strict=True):
        shutil.copy(image.path, folder / inner / name)
    return posed
