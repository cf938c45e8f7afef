"""A written scene folder is read back as it was."""

from dataclasses import replace

import numpy as np
from noise_pictures import picture
from scipy.spatial.transform import Rotation

from data.config import DatasetConfig
from data.parsed_scene import SparsePoints, WorldFrame
from data.scenes.load import load_scene
from data.scenes.scene import Scene
from data.writers.neus import write_neus_scene


def camera(distance=3.0):
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_euler("yxz", [0.4, -0.3, 0.2]).as_matrix()
    pose[:3, 3] = -distance * pose[:3, 2] + 0.2 * pose[:3, 0]
    return np.array([[150.0, 0, 80], [0, 160, 60], [0, 0, 1]]), pose


def similarity():
    matrix = np.eye(4)
    matrix[:3, :3] = 2.5 * Rotation.from_euler("xyz", [0.3, 1.0, -0.4]).as_matrix()
    matrix[:3, 3] = [1.0, -7.0, 3.0]
    return matrix


def scene(views=4):
    rng = np.random.default_rng(2)
    poses, matrices = [], []
    for view in range(views):
        intrinsics, pose = camera(2.0 + 0.3 * view)
        turn = np.eye(4)
        turn[:3, :3] = Rotation.from_euler("z", view).as_matrix()
        poses.append(turn @ pose)
        matrices.append(intrinsics + np.diag([3.0 * view, view, 0]))
    points = SparsePoints(rng.normal(size=(50, 3)), np.full(50, 3), np.full(50, 0.5), picture(1, 50)[0])
    return Scene(
        name="s",
        image_names=tuple(f"{view}.png" for view in range(views)),
        images=tuple(picture(40 + view, 60, view) for view in range(views)),
        masks=tuple(np.full((40 + view, 60), 255, np.uint8) for view in range(views)),
        intrinsics=np.array(matrices),
        c2w=np.array(poses),
        scene_to_world=similarity(),
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
        points=points,
    )


def test_a_written_scene_is_read_back(tmp_path):
    written = scene()
    write_neus_scene(tmp_path, written)
    found = load_scene(DatasetConfig(str(tmp_path), "cameras_sphere.npz", "cameras_sphere.npz"))
    assert np.allclose(found.intrinsics, written.intrinsics, atol=1e-6)
    assert np.allclose(found.c2w, written.c2w, atol=1e-9)
    assert np.allclose(found.scene_to_world, written.scene_to_world)
    for view in range(written.n_views):
        assert np.array_equal(found.images[view], written.images[view])
        assert np.array_equal(found.masks[view], written.masks[view])
    assert np.allclose(found.points.xyz, written.points.xyz, atol=1e-5)  # the file holds float32
    assert np.array_equal(found.points.rgb, written.points.rgb)


def test_the_points_are_written_in_world_coordinates(tmp_path):
    import trimesh

    written = scene()
    write_neus_scene(tmp_path, written)
    cloud = trimesh.load(tmp_path / "sparse" / "points.ply")
    linear, shift = similarity()[:3, :3], similarity()[:3, 3]
    assert np.allclose(cloud.vertices, written.points.xyz @ linear.T + shift, atol=1e-4)
    assert np.array_equal(cloud.colors[:, :3], written.points.rgb)


def test_the_photographs_that_a_scene_was_made_from_are_named(tmp_path):
    written = scene()
    assert written.photographs == written.image_names
    write_neus_scene(tmp_path, replace(written, frame=WorldFrame("the cameras")))
    found = load_scene(DatasetConfig(str(tmp_path), "cameras_sphere.npz", "cameras_sphere.npz"))
    assert found.image_names[1] == "001.png" and found.photographs == written.image_names
