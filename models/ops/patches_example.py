"""The example of the patch comparison."""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.ops.example import Example
from models.ops.patches import Patches, patch_costs

COUNT = 20  # patches


def patches_example(rng: np.random.Generator) -> Example:
    """Patches of the plane z = 0, seen by adjacent cameras."""
    intrinsics = np.array([[30.0, 0, 20], [0, 30, 20], [0, 0, 1]])
    rows = []
    for shift in (0.0, 0.2):
        place = np.array([shift, 0.0, -2.0])
        projection = intrinsics @ np.column_stack([np.eye(3), -place])
        rows.append(np.concatenate([projection.ravel(), np.linalg.inv(intrinsics).ravel(), place, [40, 40]]))
    points = jt.array(rng.uniform(-0.5, 0.5, (COUNT, 3)).astype(np.float32))
    normals = jt.array(np.array([0, 0, -1], np.float32) + rng.normal(0, 0.2, (COUNT, 3)).astype(np.float32))
    x, y = np.meshgrid(np.arange(40), np.arange(40))
    images = np.stack([127 + 100 * np.sin(0.5 * x + shift) * np.cos(0.4 * y) for shift in (0.0, 1.5)]).astype(np.uint8)
    views = np.tile(np.array([0, 1], np.int32), (COUNT, 1))
    views[::4, 0] = -1
    views = jt.array(views)
    given = (points, normals, views, jt.array(np.array(rows, np.float32)), jt.array(images))
    return Example(patch_costs, (*given, Patches(40, 40, 1, 2, 1, 1.9)), (points, normals))
