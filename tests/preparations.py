"""Shared by the tests of preparations: requests, what comes of them, and the resulting scene."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.config import DatasetConfig
from data.errors import UserError
from data.io.images import list_images, write_image
from data.prepare import camera_steps, pipeline
from data.prepare.pipeline import Request, prepare
from data.scenes.load import load_scene
from data.scenes.scene import Scene

N_VIEWS = 3  # of the fixture `prepared_scene`
LONG_STEPS = ("copy_images", "find_features", "match_features", "map_images")


def request(folder: Path, **changes: Any) -> Request:
    """From the photographs in folder/photos to folder/scene."""
    return Request(**{"images": folder / "photos", "target": folder / "scene", "frames": 6, **changes})


def lines_of(folder: Path, **changes: Any) -> list[str]:
    """Prepare a scene that was not ready; returns the lines that are said."""
    said: list[str] = []
    assert prepare(request(folder, **changes), said.append)
    return said


def refuse(words: str, folder: Path, **changes: Any) -> None:
    """A preparation that is refused in one sentence with these words."""
    with pytest.raises(UserError, match=words) as caught:
        prepare(request(folder, **changes), str)
    assert "\n" not in str(caught.value)


def read(folder: Path) -> Scene:
    """A scene folder of the published format."""
    return load_scene(DatasetConfig(str(folder), "cameras_sphere.npz", "cameras_sphere.npz"))


def forbid(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The steps that must not run."""
    for name in names:
        module = pipeline if name == "copy_images" else camera_steps
        monkeypatch.setattr(module, name, lambda *given, step=name: pytest.fail(f"{step} ran again"))


def give_masks(folder: Path) -> str:
    """The folder `given` with a mask for each photograph, of growing widths."""
    (folder / "given").mkdir()
    for index, path in enumerate(list_images(folder / "photos")):
        mask = np.zeros((240, 320), np.uint8)
        mask[40:200, 60 : 200 + index] = 255
        write_image(folder / "given" / f"{path.stem}.png", mask)
    return str(folder / "given")
