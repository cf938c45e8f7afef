"""A written scene folder is read back as it was."""

from dataclasses import replace

import numpy as np
import trimesh
from rendered_photographs import picture
from synthetic_scene import dataset_config, similarity

from data.parsed_scene import SparsePoints, WorldFrame
from data.prepare.load import load_scene
from data.scenes.readers.neus import write_neus_scene
from data.scenes.scene import Scene

WORLD = similarity(2.5, (0.3, 1.0, -0.4), (1.0, -7.0, 3.0))


def scene():
    """Four views, each with a lens, a pose and a size of its own."""
    rng, poses, matrices = np.random.default_rng(2), [], []
    for view in range(4):
        pose = similarity(1.0, (0, 0, view)) @ similarity(1.0, (-0.3, 0.4, 0.2), (0, 0, 0))
        pose[:3, 3] = -(2.0 + 0.3 * view) * pose[:3, 2] + 0.2 * pose[:3, 0]
        poses.append(pose)
        matrices.append([[150.0 + 3 * view, 0, 80], [0, 160 + view, 60], [0, 0, 1]])
    points = SparsePoints(rng.normal(size=(50, 3)), np.full(50, 3), np.full(50, 0.5), picture(1, 50)[0])
    return Scene(
        name="s",
        image_names=tuple(f"{view}.png" for view in range(4)),
        images=tuple(picture(40 + view, 60, view) for view in range(4)),
        masks=tuple(np.full((40 + view, 60), 255, np.uint8) for view in range(4)),
        intrinsics=np.array(matrices),
        c2w=np.array(poses),
        scene_to_world=WORLD,
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
        points=points,
    )


def test_a_written_scene_is_read_back_and_its_points_are_in_the_world(tmp_path):
    written = replace(scene(), frame=WorldFrame("the cameras"))
    write_neus_scene(tmp_path, written)
    found = load_scene(dataset_config(tmp_path))
    assert np.allclose(found.intrinsics, written.intrinsics, atol=1e-6)
    assert np.allclose(found.c2w, written.c2w, atol=1e-9)
    assert np.allclose(found.scene_to_world, written.scene_to_world)
    for name in ("images", "masks"):
        assert all(map(np.array_equal, getattr(found, name), getattr(written, name)))
    assert np.allclose(found.points.xyz, written.points.xyz, atol=1e-5)  # the file holds float32
    assert np.array_equal(found.points.rgb, written.points.rgb)
    assert found.image_names[1] == "001.png" and found.photographs == written.photographs == written.image_names
    cloud = trimesh.load(tmp_path / "sparse" / "points.ply")
    assert np.allclose(cloud.vertices, written.points.xyz @ WORLD[:3, :3].T + WORLD[:3, 3], atol=1e-4)
    assert np.array_equal(cloud.colors[:, :3], written.points.rgb)
