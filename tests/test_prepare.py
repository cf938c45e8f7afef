"""Photographs in, scene folder out: cameras against known ones, going on after a stop, failures in one sentence."""

import os

import numpy as np
import pytest
from preparations import LONG_STEPS, N_VIEWS, compare, forbid, give_masks, lines_of, poses_of, read, refuse, request
from rendered_photographs import poses, render, save_with_exif, textures, write_photographs

from data.io.child import ChildError, run_apart
from data.io.images import list_images, read_image, write_image
from data.prepare import pipeline
from data.prepare.pipeline import prepare

pytestmark = pytest.mark.slow  # it prepares photographs


def test_photographs_become_a_scene_and_a_stray_one_is_named(tmp_path):
    (tmp_path / "photos").mkdir()
    true, surfaces = poses(6), textures(1)
    for index, pose in enumerate(true):  # 36 mm: 333 pixels of 320 x 240
        save_with_exif(tmp_path / "photos" / f"IMG {index}.jpg", render(pose, surfaces), focal=36)
    save_with_exif(tmp_path / "photos" / "stray.jpg", render(true[0], textures(9)), focal=36)
    said = lines_of(tmp_path, frames=7)
    assert said[0] == "7 photographs of 320x240 share one camera, known focal length 333 px"
    assert any("no camera was found for 1 of 7 photographs: stray.jpg" in line for line in said)
    for start in ("cameras of 6 of 7 photographs", "region of interest", "unit: not known; --marker or --scale"):
        assert any(line.startswith(start) for line in said)
    found, scene = poses_of(tmp_path / "scene"), read(tmp_path / "scene")
    degrees, shares = compare(true, found)
    assert degrees.max() < 0.5 and shares.max() < 0.01
    for one, own in zip(true, found, strict=True):  # the z axis is up in both worlds; its direction in each camera
        assert one[2, :3] @ own[2, :3] > np.cos(np.radians(1.0))
    assert scene.n_views == 6 and np.linalg.norm(scene.c2w[:, :3, 3], axis=1).min() > 1
    errors = scene.frame.camera_errors
    assert not scene.frame.is_metric and len(errors) == 6 and 0 < max(errors.values()) < 2


def test_an_unknown_focal_length_is_found(prepared_scene):
    degrees, _ = compare(poses(N_VIEWS), poses_of(prepared_scene / "scene"))
    assert degrees.max() < 0.5


def test_another_region_repeats_the_last_step_only(copied_scene, monkeypatch):
    forbid(monkeypatch, *LONG_STEPS)
    centre = read(copied_scene / "scene").scene_to_world[:3, 3] + 0.1
    roi = " ".join(map(str, [*centre, 2.0]))
    words = "contains a scene of other photographs or options .--roi, --marker, --scale or --conf.; pass --overwrite"
    refuse(words, copied_scene, roi=roi)
    assert prepare(request(copied_scene, roi=roi, overwrite=True), str)
    assert np.allclose(read(copied_scene / "scene").scene_to_world[:3, 3], centre)


def test_a_changed_photograph_repeats_everything(copied_scene, monkeypatch):
    photograph = copied_scene / "photos" / "photo_2.png"
    when = photograph.stat().st_mtime_ns
    write_image(photograph, np.flipud(read_image(photograph)))
    os.utime(photograph, ns=(when, when))
    monkeypatch.setattr(pipeline, "copy_images", fail)
    with pytest.raises(ValueError, match="two"):
        prepare(request(copied_scene, overwrite=True), str)


def test_masks_from_files_arrive_and_go(copied_scene):
    given = give_masks(copied_scene)
    assert prepare(request(copied_scene, masks=given, overwrite=True), str)
    shares = [np.mean(mask > 127) for mask in read(copied_scene / "scene").masks]
    assert np.allclose(shares, [160 * (140 + index) / (320 * 240) for index in range(N_VIEWS)], rtol=0.1)
    assert (copied_scene / "scene" / "masks.png").is_file()
    assert prepare(request(copied_scene, overwrite=True), str)
    assert not (copied_scene / "scene" / "mask").exists() and not (copied_scene / "scene" / "masks.png").exists()


def test_a_preparation_goes_on_after_its_last_finished_step(copied_scene, monkeypatch):
    work = copied_scene / "scene" / "prepare"
    for step in ("cameras", "scene"):
        (work / f"{step}.json").unlink()
    for name in pipeline.products.PRODUCTS:
        pipeline.remove(copied_scene / "scene" / name)
    forbid(monkeypatch, *LONG_STEPS[:3])
    done = [line for line in lines_of(copied_scene) if line.endswith("done before")]
    assert done == [f"{step}: done before" for step in ("photographs", "features", "matches")]
    assert read(copied_scene / "scene").n_views == N_VIEWS


def test_grabcut_that_tells_nothing_is_refused(copied_scene):
    refuse("fills the photographs", copied_scene, masks="grabcut", overwrite=True)
    assert read(copied_scene / "scene").n_views == N_VIEWS


def test_photographs_are_not_taken_from_where_the_scene_is_written(tmp_path):
    images = tmp_path / "scene" / "image"
    write_photographs(images, 3)
    refuse("which would be overwritten; move it elsewhere", tmp_path, images=images, overwrite=True)
    assert len(list_images(images)) == 3


def test_a_failure_is_explained_in_one_sentence_and_leaves_nothing(tmp_path):
    for seed, prefix in ((1, "a"), (2, "b")):
        write_photographs(tmp_path / "photos", 3, seed=seed, prefix=prefix)
    names = "a_0.png, a_1.png and a_2.png; b_0.png, b_1.png and b_2.png"
    refuse(f"form 2 groups with nothing in common: {names}", tmp_path)
    assert not (tmp_path / "scene").exists()


def fail(*given):
    raise ValueError("two\nlines")


def exhaust(report):
    raise ImportError("failed to map segment from shared object")


@pytest.mark.parametrize(
    ("task", "error", "words"),
    [(fail, ChildError, "two lines"), (exhaust, MemoryError, "failed to map")],
)
def test_a_child_that_fails_says_how(tmp_path, task, error, words):
    with pytest.raises(error, match=words):
        run_apart(task, log=tmp_path / "log")
