"""Shared by the tests of preparations: the request, and the resulting scene."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data.config import DatasetConfig
from data.prepare.pipeline import Request
from data.scenes.load import load_scene
from data.scenes.scene import Scene

N_VIEWS = 3  # of the fixture `prepared_scene`


def request(folder: Path, **changes: Any) -> Request:
    """From the photographs in folder/photos to folder/scene."""
    return Request(**{"images": folder / "photos", "target": folder / "scene", "frames": 6, **changes})


def read(folder: Path) -> Scene:
    """A scene folder of the published format."""
    return load_scene(DatasetConfig(str(folder), "cameras_sphere.npz", "cameras_sphere.npz"))
