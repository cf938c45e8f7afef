"""Shared by the tests of preparations: requests, what comes of them, and how far two reconstructions are apart.

Cameras are those of a transforms.json (instant-ngp, Blender axes), a cameras_sphere.npz, or a folder that holds one, in
the natural order of the photographs' names. The second ones are moved onto the first by the similarity that fits the
camera centres best (Umeyama, PAMI 1991); the residuals are the errors. Independent of the readers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import rq

from data.errors import UserError
from data.io.images import list_images, write_image
from data.prepare import camera_steps, pipeline
from data.prepare.load import load_scene
from data.prepare.pipeline import Request, prepare
from data.scenes.config import DatasetConfig
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


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def poses_of_transforms(path):
    """c2w [V, 4, 4] with OpenCV's axes, by the natural order of file_path; frames without their file are left out."""
    frames = sorted(json.loads(path.read_text())["frames"], key=lambda frame: natural(frame["file_path"]))
    frames = [frame for frame in frames if (path.parent / frame["file_path"]).is_file()] or frames
    return np.array([frame["transform_matrix"] for frame in frames]) @ np.diag([1.0, -1.0, -1.0, 1.0])


def poses_of_npz(path):
    """c2w [V, 4, 4] in the world frame, from world_mat_i = K [R | t]."""
    with np.load(path) as arrays:
        count = sum(key.startswith("world_mat_") and "inv" not in key for key in arrays)
        projections = [arrays[f"world_mat_{index}"][:3] for index in range(count)]
    poses = np.tile(np.eye(4), (count, 1, 1))
    for pose, projection in zip(poses, projections, strict=True):
        upper, rotation = rq(projection[:, :3])
        rotation = np.diag(np.sign(np.diag(upper))) @ rotation
        pose[:3, :3] = rotation.T
        pose[:3, 3] = -np.linalg.solve(projection[:, :3], projection[:, 3])
    return poses


def poses_of(path):
    path = Path(path)
    if path.is_dir():
        path = next(path / name for name in ("transforms.json", "cameras_sphere.npz") if (path / name).is_file())
    return poses_of_transforms(path) if path.suffix == ".json" else poses_of_npz(path)


def umeyama(source, target):
    """Scale, rotation [3, 3] and translation [3] that take the points `source` [N, 3] onto `target` best."""
    source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
    covariance = (target - target_mean).T @ (source - source_mean) / len(source)
    left, values, right = np.linalg.svd(covariance)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    rotation = left @ np.diag(signs) @ right
    scale = (values * signs).sum() / np.mean(np.sum((source - source_mean) ** 2, axis=1))
    return scale, rotation, target_mean - scale * rotation @ source_mean


def compare(a, b):
    """Errors of each camera of b against a: degrees [V], and distances [V] as shares of the extent of a's cameras."""
    scale, rotation, translation = umeyama(b[:, :3, 3], a[:, :3, 3])
    centres = scale * b[:, :3, 3] @ rotation.T + translation
    turned = np.swapaxes(a[:, :3, :3], 1, 2) @ rotation @ b[:, :3, :3]
    sines = np.linalg.norm(turned - np.eye(3), axis=(1, 2)) / np.sqrt(8)  # of half the angle; exact for small ones
    extent = np.linalg.norm(a[:, None, :3, 3] - a[None, :, :3, 3], axis=-1).max()
    return np.degrees(2 * np.arcsin(np.clip(sines, 0, 1))), np.linalg.norm(centres - a[:, :3, 3], axis=1) / extent
