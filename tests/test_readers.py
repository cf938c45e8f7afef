"""Each format, written from its definition or by its tools, is read back; point clouds in PLY files."""

import dataclasses
import json
import shutil
from functools import partial

import cv2
import numpy as np
import pytest
import scene_writers as writers
import trimesh
from format_samples import write_ngp_sample

from data.errors import SceneError
from data.io.images import read_image
from data.pixels import sample_bilinear
from data.scenes.readers.colmap import read_llff
from data.scenes.readers.points import read_points
from data.scenes.readers.transforms import read_blender, read_nerfstudio, read_ngp

PINHOLES = writers.make_views(distorted=False, alike=True)
LENSES = writers.make_views()
FISHEYES = writers.make_views(fisheye=True)

# Name -> reader, writer, views.
CASES = {
    "blender": (read_blender, writers.write_blender, PINHOLES),
    "ngp, a lens for each view": (read_ngp, writers.write_ngp, LENSES),
    "ngp, one lens": (read_ngp, partial(writers.write_ngp, shared=True), writers.shared_lens(LENSES)),
    "nerfstudio": (read_nerfstudio, writers.write_nerfstudio, LENSES),
    "nerfstudio, fisheye": (read_nerfstudio, writers.write_nerfstudio, FISHEYES),
    "llff": (read_llff, writers.write_llff, PINHOLES),
}


def opencv_pixels(posed, points):
    """Where OpenCV sees points [P, 3] through what was read; pixel (0, 0) is the first pixel's centre."""
    w2c = np.linalg.inv(posed.c2w)
    distortion = np.array(posed.lens.distortion) if posed.lens.distortion else None
    given = (points[:, None], cv2.Rodrigues(w2c[:3, :3])[0], w2c[:3, 3], posed.lens.intrinsics, distortion)
    seen = cv2.fisheye.projectPoints(*given) if posed.lens.is_fisheye else cv2.projectPoints(*given)
    return seen[0].reshape(-1, 2)


def errors(posed_images, views):
    """Largest distance in pixels between what was read and what was written, over all views."""
    pairs, points = zip(posed_images, views, strict=True), writers.sphere_points()
    return max(np.abs(opencv_pixels(one, points) - writers.project(view, points) + 0.5).max() for one, view in pairs)


@pytest.mark.parametrize("name", CASES)
def test_known_points_reproject_and_photographs_show_them_there(tmp_path, name):
    """The pictures tie the half pixels to their own grid: their colours are the sphere's normals."""
    read, write, views = CASES[name]
    write(tmp_path / "teapot", views)
    parsed = read(tmp_path / "teapot", None)
    assert parsed.name == "teapot" and parsed.source.is_file()
    assert [(one.path.stem, one.lens.size) for one in parsed.images] == [(view.name, view.size) for view in views]
    assert errors(parsed.images, views) < 1e-6  # far below the 0.01 asked for
    for posed in parsed.images:
        points = writers.sphere_points(2000)
        towards = posed.c2w[:3, 3] / np.linalg.norm(posed.c2w[:3, 3])
        points = points[points @ towards > 0.85]  # well inside the outline and the picture
        seen = sample_bilinear(read_image(posed.path), opencv_pixels(posed, points))[:, :3]
        misfit = seen - (0.5 + 0.5 * points)
        assert np.abs(misfit.mean(axis=0)).max() < 0.001  # half a pixel moves a normal by 0.02, a colour by 0.01
        assert np.abs(misfit).max() < 0.01


def test_a_blender_scene_holds_out_the_test_views_and_else_the_validation(tmp_path):
    writers.write_blender(tmp_path, PINHOLES)
    images = read_blender(tmp_path, None).images
    held_out = [posed.is_held_out for posed in images]
    assert held_out == [False] * 4 + [True] * 2
    writers.write_blender(tmp_path / "val", PINHOLES)
    shutil.copy(tmp_path / "val" / "transforms_test.json", tmp_path / "transforms_val.json")
    assert len(read_blender(tmp_path, None).images) == 6  # beside test views, those are not read
    (tmp_path / "val" / "transforms_test.json").rename(tmp_path / "val" / "transforms_val.json")
    assert [s.is_held_out for s in read_blender(tmp_path / "val", None).images] == held_out
    content = json.loads((tmp_path / "transforms_train.json").read_text())
    frame = content["frames"][1]  # a pose of few decimals becomes exactly rigid
    frame["transform_matrix"] = np.round(frame["transform_matrix"], 3).tolist()
    writers.write_json(tmp_path / "transforms_train.json", content)
    axes = read_blender(tmp_path, None).images[1].c2w[:3, :3]
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(axes, images[1].c2w[:3, :3], atol=1e-3)


def test_the_focal_length_is_found_in_the_order_of_instant_ngp(tmp_path):
    """Of one photograph of 40 x 30 pixels."""
    for keys, focal in (
        ({"fl_y": 60}, (60, 60)),
        ({"fl_x": 50, "camera_angle_x": 1.0}, (50, 50)),
        ({"camera_angle_x": np.pi / 2, "camera_angle_y": np.pi / 2}, (20, 15)),
        ({"x_fov": 90}, (20, 20)),
        ({"fl_x": 50, "fl_y": 60, "own": {"fl_x": 70}}, (70, 70)),
        ({"camera_angle_x": np.pi / 2, "w": 80, "h": 60}, (40, 40)),
    ):
        writers.save_picture(tmp_path / "a.png", np.zeros((30, 40, 4), np.uint8), alpha=False)
        frame = {"file_path": "a.png", "transform_matrix": np.eye(4).tolist()} | keys.get("own", {})
        writers.write_json(tmp_path / "transforms.json", keys | {"frames": [frame]})
        intrinsics = read_ngp(tmp_path, None).images[0].lens.intrinsics
        np.testing.assert_allclose([intrinsics[0, 0], intrinsics[1, 1]], focal, rtol=1e-12)


def test_an_ngp_scene_holds_out_the_photographs_of_its_test_file(tmp_path):
    writers.write_ngp(tmp_path, LENSES[:4])
    writers.write_ngp(tmp_path / "other", LENSES[4:])
    shutil.copytree(tmp_path / "other" / "images", tmp_path / "images", dirs_exist_ok=True)
    (tmp_path / "other" / "transforms.json").rename(tmp_path / "transforms_test.json")
    parsed = read_ngp(tmp_path, None)
    assert [posed.is_held_out for posed in parsed.images] == [False] * 4 + [True] * 2
    assert errors(parsed.images, LENSES) < 1e-6


def test_a_nerfstudio_scene_brings_its_masks_points_and_splits(tmp_path):
    points = np.round(writers.sphere_points(50), 6)
    writers.write_nerfstudio(tmp_path, LENSES, points, masks=True)
    content = json.loads((tmp_path / "transforms.json").read_text())
    names = [f"images/view_{index}.png" for index in range(6)]
    content |= {"train_filenames": names[:3], "val_filenames": names[2:4], "test_filenames": [names[4]]}
    writers.write_json(tmp_path / "transforms.json", content)
    parsed = read_nerfstudio(tmp_path, None)
    assert [posed.is_held_out for posed in parsed.images] == [False] * 3 + [True] * 2  # view_5 is in no list
    assert all(posed.mask_path == tmp_path / "masks" / posed.path.name for posed in parsed.images)
    np.testing.assert_allclose(parsed.points.xyz, points, atol=1e-6)
    assert (parsed.points.rgb == [10, 200, 30]).all() and np.isnan(parsed.points.error).all()
    assert len(parsed.notes) == 3 and "1 photographs are in none of" in parsed.notes[0]


def test_an_llff_scene_is_matched_in_the_order_of_plain_sorting(tmp_path):
    """poses_bounds.npy is written in the order of numpy's argsort of the names: 10 before 9."""
    views = [dataclasses.replace(view, name=f"img_{index + 7}") for index, view in enumerate(PINHOLES)]
    writers.write_llff(tmp_path, views)
    parsed, ordered = read_llff(tmp_path, None), sorted(views, key=lambda view: view.name)
    assert [posed.path.stem for posed in parsed.images] == [view.name for view in ordered]
    assert ordered[0].name == "img_10" and errors(parsed.images, ordered) < 1e-6


# what the tools of each format write, to the numbers worked out by hand


def test_a_scene_of_colmap2nerf(tmp_path):
    write_ngp_sample(tmp_path)
    parsed = read_ngp(tmp_path, None)
    (posed,) = parsed.images
    assert posed.lens.intrinsics.tolist() == [[1375.52, 0, 554.058], [0, 1374.49, 964.768], [0, 0, 1]]
    assert posed.lens.distortion == (0.0578421, -0.0805099, -0.000980296, 0.00015575)
    np.testing.assert_allclose(posed.c2w[:3, 1], [-0.087996, 0.036755, -0.995443], atol=1e-6)
    assert "1 of 2 photographs are missing" in parsed.notes[0] and "./images/0002.png" in parsed.notes[0]


# point clouds in PLY files

XYZ = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
HEADER = "ply\nformat ascii 1.0\nelement vertex {}\nproperty float x\nproperty float y\nproperty float z\nend_header\n"


def test_points_come_with_their_colours_or_grey(tmp_path):
    path = tmp_path / "points.ply"
    colours = np.arange(160, dtype=np.uint8).reshape(40, 4)
    trimesh.PointCloud(XYZ, colors=colours).export(path)
    points = read_points(path)
    np.testing.assert_array_equal(points.xyz, XYZ)
    np.testing.assert_array_equal(points.rgb, colours[:, :3])
    assert points.xyz.dtype == np.float64 and points.rgb.dtype == np.uint8
    assert points.n_views.tolist() == [0] * 40 and np.isnan(points.error).all()
    trimesh.PointCloud(XYZ).export(path)
    assert (read_points(path).rgb == 128).all()
    path.write_text(HEADER.format(0))
    assert read_points(path) is None


DAMAGED = "cannot be read as a PLY file|is truncated: it has 1 of 1000000000000 points"
NOT_FINITE = "has points that are NaN or infinite"


def test_a_damaged_file_of_points_is_named(tmp_path):
    for content, words in ((HEADER.format(10**12) + "1 2 3\n", DAMAGED), (HEADER.format(1) + "1 2 nan\n", NOT_FINITE)):
        (tmp_path / "points.ply").write_text(content)
        with pytest.raises(SceneError, match=f"points.ply: ({words})"):
            read_points(tmp_path / "points.ply")
