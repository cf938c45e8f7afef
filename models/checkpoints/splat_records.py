"""Writes Gaussians as .splat, the 32-byte records of web viewers. N splats.

A record (https://github.com/antimatter15/splat, README and convert.py): position and standard deviations as float32,
then colour with opacity and the quaternion (w, x, y, z) as bytes; the most visible splats come first. Colours that
depend on the direction are not kept.
"""

from __future__ import annotations

import numpy as np

from models.checkpoints.splat_ply import Splats, in_world

SUFFIX = ".splat"
# (x, y, z) -> (x, -z, y): z up becomes y down, which web viewers show upright.
Y_DOWN = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
CONSTANT = 0.28209479177387814  # the spherical harmonic of degree 0
RECORD = np.dtype([("position", "<f4", 3), ("deviation", "<f4", 3), ("color", "u1", 4), ("turn", "u1", 4)])


def encode_records(splats: Splats, scene_to_file: np.ndarray, is_flat: bool) -> bytes:
    """The file's content for splats in the working frame; scene_to_file [4, 4] is a similarity."""
    world = in_world(splats, scene_to_file, is_flat)
    opacity = 1.0 / (1.0 + np.exp(-world["opacities"].reshape(-1)))
    quaternions = world["quats"] / np.linalg.norm(world["quats"], axis=1, keepdims=True)
    records = np.zeros(len(opacity), RECORD)
    records["position"], records["deviation"] = world["means"], np.exp(world["sizes"])
    records["color"][:, :3] = _bytes(255.0 * (0.5 + CONSTANT * world["dc"]))
    records["color"][:, 3] = _bytes(255.0 * opacity)
    records["turn"] = _bytes(128.0 + 128.0 * quaternions)
    order = np.argsort(-(world["sizes"].sum(axis=1) + np.log(opacity)), kind="stable")
    return records[order].tobytes()


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
