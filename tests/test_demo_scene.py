"""The bundled scene: complete, small, reproducible, and its pictures, cameras and exact surface agree."""

from pathlib import Path

import numpy as np
import pytest
from rigs import project

from data.cameras import decompose_projection
from data.demo import make_demo
from data.io.images import read_image
from models.mesh.mesh import read_mesh
from models.results.surface_metrics import sample_faces

DEMO = Path(make_demo.__file__).parent
SETS = [(DEMO, make_demo.TRAIN_VIEWS), (DEMO / "test", len(make_demo.TEST_DIRECTIONS))]


def working_frame_camera(folder, view):
    """Intrinsics and pose in the unit-sphere frame, from the files alone."""
    with np.load(folder / "cameras_sphere.npz") as cameras:
        return decompose_projection((cameras[f"world_mat_{view}"] @ cameras[f"scale_mat_{view}"])[:3])


@pytest.mark.parametrize(("folder", "views"), SETS, ids=["train", "test"])
def test_ground_truth_projects_into_the_masks_and_fills_them(folder, views):
    points = sample_faces(read_mesh(DEMO / "ground_truth.ply"), 200_000, np.random.default_rng(0))[0]
    for view in range(0, views, 3):
        mask = read_image(folder / "mask" / f"{view:03d}.png")[..., 0] > 0
        pixels = np.rint(project(points, *working_frame_camera(folder, view))[0]).astype(int)
        drawn = np.zeros_like(mask)
        drawn[pixels[:, 1], pixels[:, 0]] = True
        grown = np.pad(mask, 1)
        near = np.any([grown[i : i + 200, j : j + 200] for i in range(3) for j in range(3)], axis=0)
        assert not (drawn & ~near).any() and (drawn & mask).sum() > 0.99 * mask.sum()
