"""Scenes from folders: cameras, frames, pictures and masks come out as they were put in."""

import tracemalloc

import numpy as np
import pytest
from rigs import project
from synthetic_scene import SCALE_MAT, dataset_config, save, similarity, write_scene

from data.prepare.load import load_scene


def load(folder, **changes):
    return load_scene(dataset_config(folder, **changes))


@pytest.mark.parametrize("scale_mat", [None, similarity(scale=1e-3, translation=(5e3, 0, 1e2))])
def test_cameras_frames_and_pictures_are_those_that_were_written(tmp_path, scale_mat):
    written = write_scene(tmp_path, scale_mat=scale_mat)
    scene = load(tmp_path)
    assert scene.n_views == 4 and scene.size(0) == (32, 24)
    assert scene.image_names == ("000.png", "001.png", "002.png", "003.png")
    points = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20, 3))
    world = points @ scene.scene_to_world[:3, :3].T + scene.scene_to_world[:3, 3]
    for view in range(4):
        np.testing.assert_allclose(scene.intrinsics[view], written.intrinsics, rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(scene.c2w[view], written.c2w[view], atol=1e-5)
        homogeneous = np.c_[world, np.ones(20)] @ written.world_mats[view][:3].T
        pixels, _ = project(points, scene.intrinsics[view], scene.c2w[view])
        np.testing.assert_allclose(pixels, homogeneous[:, :2] / homogeneous[:, 2:], rtol=1e-6, atol=1e-4)
        rays, (height, width) = scene.rays(view)
        closest = np.linalg.norm(np.cross(rays.origins, rays.directions), axis=1)
        np.testing.assert_array_equal((closest < 0.5).reshape(height, width), scene.masks[view] == 255)
    np.testing.assert_array_equal(scene.scene_to_world, written.scale_mat)
    np.testing.assert_array_equal(scene.images, np.rint(written.rgb * 255))
    np.testing.assert_array_equal(scene.masks, written.hit * 255)
    assert scene.images[0].dtype == scene.masks[0].dtype == np.uint8
    np.testing.assert_allclose([scene.bbox_min, scene.bbox_max], [[-1.01] * 3, [1.01] * 3], rtol=1e-8)


@pytest.mark.parametrize("level", [1, 3])
def test_reduced_pictures_show_what_their_rays_see(tmp_path, level):
    written = write_scene(tmp_path, size=(120, 160), n_views=1, radius=1.9, bits=16)  # the sphere fills it
    scene = load(tmp_path)
    rays, (height, width) = scene.rays(0, level)
    seen = scene.rgb_image(0, level)
    assert seen.shape == (height, width, 3) == (120 // level, 160 // level, 3) and seen.dtype == np.float32
    along = np.sum(rays.origins * rays.directions, axis=1)
    depth = -along - np.sqrt(along**2 - np.sum(rays.origins**2, axis=1) + 1.9**2)
    expected = 0.5 + 0.5 * (rays.origins + depth[:, None] * rays.directions) / 1.9
    assert written.hit.all()
    np.testing.assert_allclose(seen.reshape(-1, 3), expected, atol=1e-4)  # a shift by 0.3 pixels makes 5e-4


def test_alpha_is_the_mask_where_there_is_no_mask_folder(tmp_path):
    written = write_scene(tmp_path / "alpha", masks=False, alpha=True, bits=16)
    np.testing.assert_array_equal(load(tmp_path / "alpha").masks, written.hit * 255)
    write_scene(tmp_path / "mixed")
    save(tmp_path / "mixed/image/001.png", np.zeros((24, 32, 4), np.uint8))
    assert load(tmp_path / "mixed").masks[1].any()


def test_a_region_is_the_published_one_and_a_rotated_one_is_boxed_tightly(tmp_path):
    write_scene(tmp_path)

    def box(region):
        np.savez(tmp_path / "region.npz", scale_mat_0=region)
        scene = load(tmp_path, object_cameras_name="region.npz")
        return np.stack([scene.bbox_min, scene.bbox_max])

    region = np.array([[5.0, 0, 0, 1], [0, 2, 0, 2], [0, 0, 0.5, 3], [0, 0, 0, 1]])
    published = [np.linalg.inv(SCALE_MAT) @ region @ [sign, sign, sign, 1] for sign in (-1.01, 1.01)]
    np.testing.assert_allclose(box(region), np.array(published)[:, :3], rtol=1e-12)
    rotated = SCALE_MAT @ similarity(scale=0.5, angles=(0, 0, np.pi / 4), translation=(0.1, 0, 0))
    half = 0.505 * np.array([np.sqrt(2), np.sqrt(2), 1])
    np.testing.assert_allclose(box(rotated), np.array([0.1, 0, 0]) + np.array([-half, half]), atol=1e-12)


def test_pictures_stay_compact_and_are_decoded_one_at_a_time(tmp_path):
    write_scene(tmp_path, n_views=12, size=(240, 320))
    tracemalloc.start()
    scene = load(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    stored = sum(picture.nbytes for picture in (*scene.images, *scene.masks))
    assert stored == 12 * 240 * 320 * 4
    assert peak < stored * 1.25
