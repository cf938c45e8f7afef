"""Small NeuS scene folders whose photographs, masks and cameras agree, for the tests.

A coloured sphere around the origin of the working frame, seen from all sides, drawn by intersecting each pixel's ray
with it. Independent of the geometry of `data`, which it tests.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

from data.scenes.config import DatasetConfig
from data.scenes.preprocess import preprocess
from data.scenes.readers import READERS, recognise

SCALE_MAT = np.array([[2.5, 0, 0, 0.3], [0, 2.5, 0, -0.2], [0, 0, 2.5, 4.0], [0, 0, 0, 1]])


@dataclass(frozen=True)
class SyntheticScene:
    """What was written, from the formulas and not from the files."""

    folder: Path
    intrinsics: np.ndarray  # [3, 3]
    c2w: np.ndarray  # [V, 4, 4], working frame
    world_mats: np.ndarray  # [V, 4, 4]
    scale_mat: np.ndarray  # [4, 4]
    rgb: np.ndarray  # [V, H, W, 3] float in [0, 1], before it was rounded to integers
    hit: np.ndarray  # [V, H, W] bool


def look_at(centre: np.ndarray) -> np.ndarray:
    """c2w [4, 4] of a camera at `centre` that looks at the origin; x right, y down, z forward."""
    forward = -centre / np.linalg.norm(centre)
    side = np.cross(np.array([0.0, 1.0, 0.0]) if abs(forward[2]) > 0.9 else np.array([0.0, 0.0, -1.0]), forward)
    side /= np.linalg.norm(side)
    c2w = np.eye(4)
    c2w[:3, :3] = np.stack([side, np.cross(forward, side), forward], axis=1)
    c2w[:3, 3] = centre
    return c2w


def draw_sphere(intrinsics, c2w, height, width, radius):
    """Colours [H, W, 3] (0.5 + 0.5 * normal on the sphere, black off it) and where it is hit [H, W]."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    directions = np.stack(
        [(x - intrinsics[0, 2]) / intrinsics[0, 0], (y - intrinsics[1, 2]) / intrinsics[1, 1], np.ones(x.shape)],
        axis=-1,
    )
    directions = np.einsum("ij,hwj->hwi", c2w[:3, :3], directions)
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    centre = c2w[:3, 3]
    half_b = directions @ centre
    discriminant = half_b**2 - (centre @ centre - radius**2)
    hit = discriminant > 0
    distance = -half_b - np.sqrt(np.where(hit, discriminant, 0.0))
    normals = (centre + distance[..., None] * directions) / radius
    return np.where(hit[..., None], 0.5 + 0.5 * normals, 0.0), hit


def write_scene(
    folder: Path,
    n_views: int = 4,
    size: tuple[int, int] = (24, 32),  # height, width
    masks: bool = True,
    scale_mat: np.ndarray | None = None,
    radius: float = 0.5,
    distance: float = 3.0,
    suffix: str = ".png",
    bits: int = 8,
    alpha: bool = False,
    cameras_name: str = "cameras_sphere.npz",
    seed: int = 0,
) -> SyntheticScene:
    """Write image/, mask/ (where `masks`) and the camera file into `folder`, and say what was written."""
    height, width = size
    scale_mat = SCALE_MAT if scale_mat is None else np.asarray(scale_mat, dtype=np.float64)
    focal = 0.5 * distance * min(size) * 0.9  # the unit sphere about fills the picture
    intrinsics = np.array([[focal, 0, (width - 1) / 2], [0, 1.1 * focal, (height - 1) / 2], [0, 0, 1.0]])
    centres = np.random.default_rng(seed).normal(size=(n_views, 3))
    c2w = np.stack([look_at(distance * c / np.linalg.norm(c)) for c in centres])
    padded = np.eye(4)
    padded[:3, :3] = intrinsics
    world_mats = padded @ np.linalg.inv(scale_mat @ c2w)
    pictures = [draw_sphere(intrinsics, pose, height, width, radius) for pose in c2w]
    for index, (rgb, hit) in enumerate(pictures):
        largest, dtype = (255, np.uint8) if bits == 8 else (65535, np.uint16)
        samples = np.rint(rgb[..., ::-1] * largest).astype(dtype)  # OpenCV writes BGR
        if alpha:
            samples = np.dstack([samples, (hit * largest).astype(dtype)])
        save(folder / "image" / f"{index:03d}{suffix}", samples)
        if masks:
            save(folder / "mask" / f"{index:03d}.png", (hit * 255).astype(np.uint8))
    named = {f"world_mat_{i}": matrix for i, matrix in enumerate(world_mats)}
    named |= {f"scale_mat_{i}": scale_mat for i in range(n_views)}
    np.savez(folder / cameras_name, **named)
    rgb, hit = (np.stack(values) for values in zip(*pictures, strict=True))
    return SyntheticScene(folder, intrinsics, c2w, world_mats, scale_mat, rgb, hit)


def save(path: Path, samples: np.ndarray) -> None:
    """Encode by the suffix in small letters: OpenCV does not know every spelling."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cv2.imencode(path.suffix.lower(), samples)[1].tobytes())


def change_cameras(folder: Path, name: str = "cameras_sphere.npz", **changes: object) -> None:
    """Replace arrays of a camera file; None removes the key."""
    with np.load(folder / name) as archive:
        named = dict(archive)
    named.update(changes)
    np.savez(folder / name, **{key: value for key, value in named.items() if value is not None})


def dataset_config(folder: Path, **changes: object) -> DatasetConfig:
    """The `dataset` block for a folder written by `write_scene`."""
    keys = {
        "data_dir": str(folder),
        "render_cameras_name": "cameras_sphere.npz",
        "object_cameras_name": "cameras_sphere.npz",
    }
    return DatasetConfig(**(keys | changes))


def similarity(scale=2.0, angles=(0.3, -0.5, 0.8), translation=(1.0, -2.0, 3.0)):
    """[4, 4]: turn by the angles (radians, about x, y, z), scale and move."""
    matrix = np.eye(4)
    matrix[:3, :3] = scale * Rotation.from_euler("xyz", angles).as_matrix()
    matrix[:3, 3] = translation
    return matrix


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
    """Copies of the first photographs of the bundled scene under `names`; returns their true posed images."""
    (folder / inner).mkdir(parents=True)
    posed = true_scene().images[: len(names)]
    for image, name in zip(posed, names, strict=True):
        shutil.copy(image.path, folder / inner / name)
    return posed
