"""Writes a `Scene` in the published NeuS format, which `data.scenes.readers.neus` reads."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import trimesh

from data.io.files import write_result
from data.io.images import write_image
from data.parsed_scene import SparsePoints
from data.scenes.readers.neus import FRAME_FILE, POINTS_FILE, REFERENCE_FILE
from data.scenes.scene import Scene

CAMERA_FILE = "cameras_sphere.npz"


def write_neus_scene(folder: Path, scene: Scene) -> None:
    """Write image/000.png ..., mask/ if the scene has masks, the sparse points and the camera file, in that order.

    The images must be uint8. The world frame of the files is that of `scene.scene_to_world`. Raises UserError if
    writing fails.
    """
    for kind in ("image", "mask") if scene.masks is not None else ("image",):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for view, image in enumerate(scene.images):
        write_image(folder / "image" / f"{view:03d}.png", image)
        if scene.masks is not None:
            write_image(folder / "mask" / f"{view:03d}.png", scene.masks[view])
    if scene.points is not None:
        write_points(folder / POINTS_FILE, scene.points, scene.scene_to_world)
    if scene.frame is not None:
        photographs = {f"{view:03d}.png": name for view, name in enumerate(scene.photographs)}
        frame = asdict(scene.frame) | {"photographs": photographs}
        if (reference := frame.pop("reference")) is not None:
            write_result(folder / REFERENCE_FILE, json.dumps(reference, indent=1).encode())
        write_result(folder / FRAME_FILE, json.dumps(frame, indent=1).encode())
    content = io.BytesIO()
    np.savez(content, **camera_matrices(scene.intrinsics, scene.c2w, scene.scene_to_world))
    write_result(folder / CAMERA_FILE, content.getvalue())


def camera_matrices(intrinsics: np.ndarray, c2w: np.ndarray, scene_to_world: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of the camera file: for each view i camera_mat_i, world_mat_i, scale_mat_i [4, 4] and their inverses.

    Args:
        intrinsics: [V, 3, 3].
        c2w: [V, 4, 4], camera to working frame.
        scene_to_world: [4, 4], working frame to world, a similarity.

    world_mat_i = K [R | t] projects world points to pixels, scale_mat_i is `scene_to_world`. The names and the inverses
    are those of the published preprocess_custom_data/colmap_preprocess/gen_cameras.py, https://github.com/Totoro97/NeuS
    at commit 6e0a230.
    """
    scale = np.cbrt(np.linalg.det(scene_to_world[:3, :3]))
    matrices = {}
    for view, (intrinsic, pose) in enumerate(zip(intrinsics, c2w, strict=True)):
        world_pose = scene_to_world @ pose
        world_pose[:3, :3] /= scale  # a rotation again
        camera = np.eye(4)
        camera[:3, :3] = intrinsic
        for kind, matrix in (
            ("camera_mat", camera),
            ("world_mat", camera @ np.linalg.inv(world_pose)),
            ("scale_mat", scene_to_world),
        ):
            matrices[f"{kind}_{view}"] = matrix
            matrices[f"{kind}_inv_{view}"] = np.linalg.inv(matrix)
    return matrices


def write_points(path: Path, points: SparsePoints, to_world: np.ndarray) -> None:
    """Write the coloured points as a binary PLY in world coordinates; raises UserError if writing fails."""
    xyz = points.xyz @ to_world[:3, :3].T + to_world[:3, 3]
    cloud = trimesh.PointCloud(xyz, colors=points.rgb)
    write_result(path, cloud.export(file_type="ply"))
