"""Each format, written from its definition, is read back: known points reproject to a hundredth of a pixel."""

import dataclasses
import json
import shutil

import cv2
import numpy as np
import pytest
from scene_writers import (
    make_views,
    project,
    save_picture,
    shared_lens,
    sphere_points,
    write_blender,
    write_json,
    write_llff,
    write_nerfstudio,
    write_ngp,
)

from data.io.images import read_image, sample_bilinear
from data.readers.blender import read_blender
from data.readers.llff import read_llff
from data.readers.nerfstudio import read_nerfstudio
from data.readers.ngp import read_ngp

PINHOLES = make_views(distorted=False, alike=True)
LENSES = make_views()
FISHEYES = make_views(fisheye=True)

# Name -> reader, writer, views.
CASES = {
    "blender": (read_blender, write_blender, PINHOLES),
    "ngp, a lens for each view": (read_ngp, write_ngp, LENSES),
    "ngp, one lens": (read_ngp, lambda folder, views: write_ngp(folder, views, shared=True), shared_lens(LENSES)),
    "ngp, fisheye": (read_ngp, write_ngp, FISHEYES),
    "nerfstudio": (read_nerfstudio, write_nerfstudio, LENSES),
    "nerfstudio, fisheye": (read_nerfstudio, write_nerfstudio, FISHEYES),
    "llff": (read_llff, write_llff, PINHOLES),
}


def opencv_pixels(posed, points):
    """Where OpenCV sees points [P, 3] through what was read; pixel (0, 0) is the first pixel's centre."""
    w2c = np.linalg.inv(posed.c2w)
    turn = cv2.Rodrigues(w2c[:3, :3])[0]
    distortion = np.array(posed.lens.distortion) if posed.lens.distortion else None
    if posed.lens.is_fisheye:
        found = cv2.fisheye.projectPoints(points[:, None], turn, w2c[:3, 3], posed.lens.intrinsics, distortion)[0]
    else:
        found = cv2.projectPoints(points[:, None], turn, w2c[:3, 3], posed.lens.intrinsics, distortion)[0]
    return found.reshape(-1, 2)


def errors(posed_images, views, points):
    """Largest distance in pixels between what was read and what was written, over all views."""
    return max(
        np.abs(opencv_pixels(posed, points) - (project(view, points) - 0.5)).max()
        for posed, view in zip(posed_images, views, strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_known_points_reproject_to_a_hundredth_of_a_pixel(tmp_path, name):
    read, write, views = CASES[name]
    write(tmp_path / "teapot", views)
    parsed = read(tmp_path / "teapot", None)
    assert parsed.name == "teapot" and parsed.source.is_file()
    assert [posed.path.stem for posed in parsed.images] == [view.name for view in views]
    assert [posed.lens.size for posed in parsed.images] == [view.size for view in views]
    assert errors(parsed.images, views, sphere_points()) < 1e-6  # far below the 0.01 asked for


@pytest.mark.parametrize("name", CASES)
def test_the_photographs_show_the_points_where_the_cameras_say(tmp_path, name):
    """Ties the half pixels to the picture's own grid: its colours are the sphere's normals."""
    read, write, views = CASES[name]
    write(tmp_path, views)
    for posed in read(tmp_path, None).images:
        points = sphere_points(2000)
        towards = posed.c2w[:3, 3] / np.linalg.norm(posed.c2w[:3, 3])
        points = points[points @ towards > 0.85]  # well inside the outline and the picture
        seen = sample_bilinear(read_image(posed.path), opencv_pixels(posed, points))[:, :3]
        misfit = seen - (0.5 + 0.5 * points)
        assert np.abs(misfit.mean(axis=0)).max() < 0.001  # half a pixel moves a normal by 0.02, a colour by 0.01
        assert np.abs(misfit).max() < 0.01


def test_a_blender_scene_holds_out_the_test_views_and_never_trains_on_the_validation_views(tmp_path):
    write_blender(tmp_path, PINHOLES)
    held_out = [posed.is_held_out for posed in read_blender(tmp_path, None).images]
    assert held_out == [False] * 4 + [True] * 2
    write_blender(tmp_path / "val", PINHOLES)
    shutil.copy(tmp_path / "val" / "transforms_test.json", tmp_path / "transforms_val.json")
    assert len(read_blender(tmp_path, None).images) == 6  # beside test views, those are not read
    (tmp_path / "val" / "transforms_test.json").rename(tmp_path / "val" / "transforms_val.json")
    assert [s.is_held_out for s in read_blender(tmp_path / "val", None).images] == held_out


def test_a_pose_of_few_decimals_becomes_exactly_rigid(tmp_path):
    write_blender(tmp_path, PINHOLES)
    change_frame(tmp_path / "transforms_train.json", 1, lambda m: np.round(m, 3))
    axes = read_blender(tmp_path, None).images[1].c2w[:3, :3]
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(axes, np.stack([PINHOLES[1].right, PINHOLES[1].down, PINHOLES[1].forward], 1), atol=1e-3)


def change_frame(path, index, change):
    content = json.loads(path.read_text())
    frame = content["frames"][index]
    frame["transform_matrix"] = np.asarray(change(frame["transform_matrix"])).tolist()
    write_json(path, content)


def one_frame(folder, **keys):
    """An instant-ngp scene of one 40 x 30 photograph with these keys; what was read of its lens."""
    save_picture(folder / "a.png", np.zeros((30, 40, 4), np.uint8), alpha=False)
    frame = {"file_path": "a.png", "transform_matrix": np.eye(4).tolist()}
    own = keys.pop("own", {})
    write_json(folder / "transforms.json", keys | {"frames": [frame | own]})
    return read_ngp(folder, None).images[0].lens


@pytest.mark.parametrize(
    ("keys", "focal"),
    [
        ({"fl_x": 50, "fl_y": 60}, (50, 60)),
        ({"fl_x": 50}, (50, 50)),
        ({"fl_y": 60}, (60, 60)),
        ({"fl_x": 50, "camera_angle_x": 1.0}, (50, 50)),
        ({"camera_angle_x": np.pi / 2}, (20, 20)),
        ({"camera_angle_x": np.pi / 2, "camera_angle_y": np.pi / 2}, (20, 15)),
        ({"x_fov": 90}, (20, 20)),
        ({"fl_x": 50, "fl_y": 60, "own": {"fl_x": 70}}, (70, 70)),
        ({"fl_x": 100, "fl_y": 120, "w": 80, "h": 60}, (100, 120)),
        ({"camera_angle_x": np.pi / 2, "w": 80, "h": 60}, (40, 40)),
    ],
)
def test_the_focal_length_is_found_in_the_order_of_instant_ngp(tmp_path, keys, focal):
    intrinsics = one_frame(tmp_path, **keys).intrinsics
    np.testing.assert_allclose([intrinsics[0, 0], intrinsics[1, 1]], focal, rtol=1e-12)


def test_an_ngp_scene_holds_out_the_photographs_of_its_test_file(tmp_path):
    write_ngp(tmp_path, LENSES[:4])
    write_ngp(tmp_path / "other", LENSES[4:])
    shutil.copytree(tmp_path / "other" / "images", tmp_path / "images", dirs_exist_ok=True)
    (tmp_path / "other" / "transforms.json").rename(tmp_path / "transforms_test.json")
    parsed = read_ngp(tmp_path, None)
    assert [posed.is_held_out for posed in parsed.images] == [False] * 4 + [True] * 2
    assert errors(parsed.images, LENSES, sphere_points()) < 1e-6


def test_a_nerfstudio_scene_brings_its_masks_points_and_splits(tmp_path):
    points = np.round(sphere_points(50), 6)
    write_nerfstudio(tmp_path, LENSES, points, masks=True)
    content = json.loads((tmp_path / "transforms.json").read_text())
    names = [f"images/view_{index}.png" for index in range(6)]
    content |= {"train_filenames": names[:3], "val_filenames": names[2:4], "test_filenames": [names[4]]}
    write_json(tmp_path / "transforms.json", content)
    parsed = read_nerfstudio(tmp_path, None)
    assert [posed.is_held_out for posed in parsed.images] == [False] * 3 + [True] * 2  # view_5 is in no list
    assert [posed.mask_path.name for posed in parsed.images] == [posed.path.name for posed in parsed.images]
    assert {posed.mask_path.parent.name for posed in parsed.images} == {"masks"}
    np.testing.assert_allclose(parsed.points.xyz, points, atol=1e-6)
    assert (parsed.points.rgb == [10, 200, 30]).all() and np.isnan(parsed.points.error).all()
    assert len(parsed.notes) == 3 and "1 photographs are in none of" in parsed.notes[0]


def test_an_llff_scene_is_matched_in_the_order_of_plain_sorting(tmp_path):
    """poses_bounds.npy is written in the order of numpy's argsort of the names: 10 before 9."""
    views = [dataclasses.replace(view, name=f"img_{index + 7}") for index, view in enumerate(PINHOLES)]
    write_llff(tmp_path, views)
    parsed = read_llff(tmp_path, None)
    ordered = sorted(views, key=lambda view: view.name)
    assert [posed.path.stem for posed in parsed.images] == [view.name for view in ordered]
    assert ordered[0].name == "img_10" and errors(parsed.images, ordered, sphere_points()) < 1e-6
