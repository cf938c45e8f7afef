"""COLMAP projects written by hand from the description of the format, for the tests of the reader."""

import struct
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from data.io.images import write_image

# Name -> number, size, parameters: every model that is read, with strong distortion.
CAMERAS = {
    "SIMPLE_PINHOLE": (0, (64, 48), (60.0, 31.0, 25.5)),
    "PINHOLE": (1, (80, 60), (70.0, 72.0, 40.25, 29.0)),
    "SIMPLE_RADIAL": (2, (64, 64), (66.0, 32.0, 31.0, -0.12)),
    "RADIAL": (3, (96, 54), (90.0, 47.0, 28.0, 0.08, -0.05)),
    "OPENCV": (4, (50, 90), (77.0, 79.0, 24.0, 46.0, 0.06, -0.08, 0.004, -0.003)),
    "OPENCV_FISHEYE": (5, (70, 70), (40.0, 41.0, 35.0, 34.0, 0.03, -0.02, 0.01, -0.004)),
    "FULL_OPENCV": (6, (64, 48), (60.0, 61.0, 30.0, 25.0, 0.2, 0.1, 0.002, -0.001, 0.03, 0.15, 0.05, 0.01)),
    "SIMPLE_RADIAL_FISHEYE": (8, (64, 60), (44.0, 33.0, 30.0, 0.05)),
    "RADIAL_FISHEYE": (9, (64, 62), (45.0, 32.0, 30.5, 0.04, -0.03)),
}
N_POINTS = 30


def poses(count, seed=3):
    """World-to-camera quaternions [count, 4] (w first) and translations [count, 3] that look at the origin."""
    rng = np.random.default_rng(seed)
    quaternions, translations = [], []
    for index in range(count):
        angle = 2 * np.pi * index / count
        centre = np.array([3 * np.cos(angle), rng.uniform(-0.5, 0.5), 3 * np.sin(angle)])
        forward = -centre / np.linalg.norm(centre)
        right = np.cross([0.0, 1.0, 0.0], forward)
        right /= np.linalg.norm(right)
        rotation = np.stack([right, np.cross(forward, right), forward])
        x, y, z, w = Rotation.from_matrix(rotation).as_quat()
        quaternions.append((w, x, y, z))
        translations.append(-rotation @ centre)
    return np.array(quaternions), np.array(translations)


def points(seed=4):
    return np.random.default_rng(seed).uniform(-0.6, 0.6, (N_POINTS, 3))


def project(kind, parameters, camera_points):
    """Pixels [N, 2] in COLMAP's convention, written from the description of its camera models."""
    x, y = (camera_points[:, :2] / camera_points[:, 2:]).T
    p = parameters
    fx, fy, cx, cy, *rest = p if kind in ("PINHOLE", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV") else (p[0], *p)
    k = [*rest, *[0.0] * (8 - len(rest))]
    if "FISHEYE" in kind:
        r = np.hypot(x, y)
        theta = np.arctan(r)
        bent = theta * (1 + k[0] * theta**2 + k[1] * theta**4 + k[2] * theta**6 + k[3] * theta**8)
        u, v = x * bent / r, y * bent / r
    else:
        r2 = x * x + y * y
        radial = 1 + k[0] * r2 + k[1] * r2**2
        if kind == "FULL_OPENCV":
            radial = (radial + k[4] * r2**3) / (1 + k[5] * r2 + k[6] * r2**2 + k[7] * r2**3)
        u = x * radial + 2 * k[2] * x * y + k[3] * (r2 + 2 * x * x)
        v = y * radial + 2 * k[3] * x * y + k[2] * (r2 + 2 * y * y)
    return np.stack([fx * u + cx, fy * v + cy], axis=1)


def write_project(folder: Path, kind: str, where="sparse/0", names=None, matches=N_POINTS):
    """A project with an image per camera model, binary or text by `kind`, with `matches` in each; returns its names."""
    names = names or [f"{index}_{model.lower()}.png" for index, model in enumerate(CAMERAS)]
    model = folder / where
    model.mkdir(parents=True, exist_ok=True)
    quaternions, translations = poses(len(names))
    cameras = list(CAMERAS.items())[: len(names)]
    (write_binary if kind == "bin" else write_text)(model, cameras, quaternions, translations, names, matches)
    for name, (_, (_, (width, height), _)) in zip(names, cameras, strict=True):
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(folder / "images" / name, np.full((height, width, 3), 90, np.uint8))
    return names


def write_text(model, cameras, quaternions, translations, names, matches):
    lines = ["# Camera list"]
    for index, (name, (_, (width, height), parameters)) in enumerate(cameras):
        lines.append(f"{index + 1} {name} {width} {height} {' '.join(map(repr, parameters))}")
    (model / "cameras.txt").write_text("\n".join(lines) + "\n")
    lines = ["# Image list with two lines of data per image"]
    for index, name in enumerate(names):
        numbers = [*quaternions[index].tolist(), *translations[index].tolist()]
        lines += [f"{index + 1} {' '.join(map(repr, numbers))} {index + 1} {name}"]
        lines += [" ".join(f"1.0 2.0 {point + 1}" for point in range(matches))]
    (model / "images.txt").write_text("\n".join(lines) + "\n")
    lines = []
    for index, xyz in enumerate(points()):
        track = " ".join(f"{image + 1} {index}" for image in range(len(names)))
        lines.append(f"{index + 1} {' '.join(map(repr, xyz.tolist()))} {index} 20 30 0.5 {track}")
    (model / "points3D.txt").write_text("\n".join(lines) + "\n")


def write_binary(model, cameras, quaternions, translations, names, matches):
    content = struct.pack("<Q", len(cameras))
    for index, (_, (number, (width, height), parameters)) in enumerate(cameras):
        content += struct.pack("<iiQQ", index + 1, number, width, height)
        content += struct.pack(f"<{len(parameters)}d", *parameters)
    (model / "cameras.bin").write_bytes(content)
    content = struct.pack("<Q", len(names))
    for index, name in enumerate(names):
        content += struct.pack("<i7di", index + 1, *quaternions[index], *translations[index], index + 1)
        content += name.encode() + b"\0" + struct.pack("<Q", matches)
        for point in range(matches):
            content += struct.pack("<ddq", 1.0, 2.0, point + 1)
    (model / "images.bin").write_bytes(content)
    content = struct.pack("<Q", N_POINTS)
    for index, xyz in enumerate(points()):
        content += struct.pack("<Q3d3BdQ", index + 1, *xyz, index, 20, 30, 0.5, len(names))
        for image in range(len(names)):
            content += struct.pack("<ii", image + 1, index)
    (model / "points3D.bin").write_bytes(content)
