"""How far the cameras of two reconstructions of the same photographs are apart: `python tests/compare_cameras.py A B`.

A and B are each a transforms.json (instant-ngp, Blender axes), a cameras_sphere.npz, or a folder that holds one. The
photographs are paired in the natural order of their names. B is moved onto A by the similarity that fits the camera
centres best (Umeyama, PAMI 1991); the residuals are the errors. Independent of the readers.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
from scipy.linalg import rq


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


def main(first, second):
    a, b = poses_of(first), poses_of(second)
    if len(a) != len(b):
        sys.exit(f"{first} has {len(a)} cameras and {second} {len(b)}; they are paired in their order")
    degrees, shares = compare(a, b)
    for name, values, unit in (("rotation", degrees, "degrees"), ("centre", 100 * shares, "% of the extent")):
        print(f"{name}: median {np.median(values):.3f}, worst {values.max():.3f} {unit} (camera {values.argmax()})")


if __name__ == "__main__":
    main(*sys.argv[1:])
