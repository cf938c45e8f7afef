"""Photographs in, scene folder out: cameras against known ones, going on after a stop, failures in one sentence."""

import json
import os
import shutil

import compare_cameras
import numpy as np
import pytest
import rendered_photographs
from PIL import Image
from preparations import read, request
from rendered_photographs import FOCAL, HEIGHT, WIDTH

from data.errors import UserError
from data.io.child import ChildError, run_apart
from data.io.images import list_images, read_image, write_image
from data.prepare import camera_steps, pipeline, reconstruct
from data.prepare.metric import Known
from data.prepare.pipeline import prepare

pytestmark = pytest.mark.slow  # it prepares photographs

N_VIEWS = 6


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(folder, true poses, what was said) of one preparation; not to be written to."""
    folder = tmp_path_factory.mktemp("prepared")
    poses = rendered_photographs.write_photographs(folder / "photos", N_VIEWS)
    said = []
    assert prepare(request(folder), said.append)
    return folder, poses, said


@pytest.fixture
def copied(prepared, tmp_path):
    """A copy of the prepared folder that a test may change."""
    shutil.copytree(prepared[0], tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return tmp_path


def test_the_cameras_are_found(prepared):
    folder, poses, said = prepared
    degrees, shares = compare_cameras.compare(poses, compare_cameras.poses_of(folder / "scene"))
    assert degrees.max() < 0.5
    assert shares.max() < 0.01
    assert any(line.startswith(f"cameras of {N_VIEWS} of {N_VIEWS} photographs") for line in said)
    assert any(line.startswith("region of interest") for line in said)


def test_the_scene_is_read_back_with_its_points_inside_the_sphere(prepared):
    scene = read(prepared[0] / "scene")
    assert scene.n_views == N_VIEWS
    assert np.linalg.norm(scene.c2w[:, :3, 3], axis=1).min() > 1
    assert (prepared[0] / "scene" / "sparse" / "points.ply").stat().st_size > 1000


def forbid(monkeypatch, *names):
    """The steps that must not run."""
    for name in names:
        module = pipeline if name == "copy_images" else camera_steps
        monkeypatch.setattr(module, name, lambda *arguments, step=name: pytest.fail(f"{step} ran again"))


def test_a_scene_that_lost_its_cameras_gets_them_back(copied):
    (copied / "scene" / "cameras_sphere.npz").unlink()
    assert prepare(request(copied), str)
    assert read(copied / "scene").n_views == N_VIEWS


def test_another_region_repeats_the_last_step_only(copied, monkeypatch):
    forbid(monkeypatch, "copy_images", "find_features", "match_features", "map_images")
    centre = read(copied / "scene").scene_to_world[:3, 3] + 0.1
    roi = " ".join(map(str, [*centre, 2.0]))
    with pytest.raises(UserError, match="contains a scene of other photographs or options; pass --overwrite"):
        prepare(request(copied, roi=roi), str)
    assert prepare(request(copied, roi=roi, overwrite=True), str)
    assert np.allclose(read(copied / "scene").scene_to_world[:3, 3], centre)


def test_the_scene_is_upright(prepared):
    folder, poses, said = prepared
    found = compare_cameras.poses_of(folder / "scene")
    for true, own in zip(poses, found, strict=True):  # the z axis is up in both worlds; its direction in each camera
        assert true[2, :3] @ own[2, :3] > np.cos(np.radians(1.0))
    frame = read(folder / "scene").frame
    assert not frame.is_metric and "unit: not known; --marker or --scale gives it" in said
    assert len(frame.camera_errors) == N_VIEWS and 0 < max(frame.camera_errors.values()) < 2


def test_a_known_length_gives_metres_and_repeats_the_last_step_only(copied, monkeypatch):
    forbid(monkeypatch, "copy_images", "find_features", "match_features", "map_images")
    true = rendered_photographs.poses(N_VIEWS)
    ends = np.array([[0.0, 0.0, 0.5], [0.0, 1.5, 0.5]])  # on the corner, 1.5 apart; told as 3 m
    words = []
    for view in (1, 4):
        words.append(f"photo_{view}.png")
        for end in ends:
            x, y, depth = true[view][:3, :3].T @ (end - true[view][:3, 3])
            words += [str(FOCAL * x / depth + (WIDTH - 1) / 2), str(FOCAL * y / depth + (HEIGHT - 1) / 2)]
    assert prepare(request(copied, known=Known(length=(*words, "3")), overwrite=True), str)
    scene = read(copied / "scene")
    own = compare_cameras.poses_of(copied / "scene")
    apart = np.linalg.norm(own[5][:3, 3] - own[0][:3, 3]) / np.linalg.norm(true[5][:3, 3] - true[0][:3, 3])
    assert apart == pytest.approx(2.0, rel=0.01)
    assert scene.frame.scale_source == "a given length of 3 m"


def test_a_changed_photograph_repeats_everything(copied, monkeypatch):
    photograph = copied / "photos" / "photo_3.png"
    when, picture = photograph.stat().st_mtime_ns, read_image(photograph)
    write_image(photograph, np.flipud(picture))
    os.utime(photograph, ns=(when, when))

    def stop(*arguments):
        raise UserError("the first step ran")

    monkeypatch.setattr(pipeline, "copy_images", stop)
    with pytest.raises(UserError, match="the first step ran"):
        prepare(request(copied, overwrite=True), str)


def test_a_plain_copy_of_photographs_masks_and_scene_is_ready(copied, tmp_path_factory):
    shutil.copytree(copied / "photos", copied / "given")
    assert prepare(request(copied, masks=str(copied / "given"), overwrite=True), str)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(copied, elsewhere, dirs_exist_ok=True, copy_function=shutil.copyfile)
    assert not prepare(request(elsewhere, masks=str(elsewhere / "given")), str)


def test_a_preparation_goes_on_after_its_last_finished_step(copied, monkeypatch):
    work = copied / "scene" / "prepare"
    for step in ("cameras", "scene"):
        (work / f"{step}.json").unlink()
    for name in pipeline.PRODUCTS:
        pipeline.remove(copied / "scene" / name)
    forbid(monkeypatch, "copy_images", "find_features", "match_features")
    said = []
    assert prepare(request(copied), said.append)
    assert [line for line in said if line.endswith("done before")] == [
        f"{step}: done before" for step in ("photographs", "features", "matches")
    ]
    assert read(copied / "scene").n_views == N_VIEWS


def test_interrupted_features_go_on_with_what_the_database_has(copied):
    work = copied / "scene" / "prepare"
    stamp = json.loads((work / "features.json").read_text())
    (work / "features.json").write_text(json.dumps({"key": stamp["key"]}))
    written = (work / "database" / "matches.db").stat().st_ino
    assert prepare(request(copied, overwrite=True), str)
    assert (work / "database" / "matches.db").stat().st_ino == written


def test_masks_from_files_arrive_in_the_scene(copied):
    (copied / "given").mkdir()
    for index, path in enumerate(list_images(copied / "photos")):
        mask = np.zeros(read_image(path).shape[:2], np.uint8)
        mask[40:200, 60 : 200 + index] = 255
        write_image(copied / "given" / f"photo_{index}.png", mask)
    assert prepare(request(copied, masks=str(copied / "given"), overwrite=True), str)
    scene = read(copied / "scene")
    shares = [np.mean(mask > 127) for mask in scene.masks]
    assert np.allclose(shares, [160 * (140 + index) / (320 * 240) for index in range(N_VIEWS)], rtol=0.1)
    assert (copied / "scene" / "masks.png").is_file()


@pytest.mark.parametrize(
    ("radius", "words"), [(None, "fills the photographs"), (1.0, "has the same colours as its surroundings")]
)
def test_grabcut_that_tells_nothing_is_refused(copied, radius, words):
    centre = read(copied / "scene").scene_to_world[:3, 3]
    roi = " ".join(map(str, [*centre, radius])) if radius else ""
    with pytest.raises(UserError, match=words):
        prepare(request(copied, masks="grabcut", roi=roi, overwrite=True), str)
    assert read(copied / "scene").n_views == N_VIEWS


def test_photographs_are_not_taken_from_where_the_scene_is_written(tmp_path):
    rendered_photographs.write_photographs(tmp_path / "scene" / "image", 3)
    with pytest.raises(UserError, match="which would be overwritten; move it elsewhere"):
        prepare(request(tmp_path, images=tmp_path / "scene" / "image", overwrite=True), str)
    assert len(list_images(tmp_path / "scene" / "image")) == 3


def two_groups(folder):
    rendered_photographs.write_photographs(folder, 3, seed=1, prefix="a")
    rendered_photographs.write_photographs(folder, 3, seed=2, prefix="b")


def two_pictures(folder):
    rendered_photographs.write_photographs(folder, 2)


def no_texture(folder):
    folder.mkdir()
    for index in range(4):
        write_image(folder / f"{index}.png", np.full((120, 160, 3), 90 + index, np.uint8))


def no_pictures(folder):
    folder.mkdir()
    (folder / "IMG_1.HEIC").write_bytes(b"x")


def one_is_cut_short(folder):
    rendered_photographs.write_photographs(folder, 3)
    (folder / "photo_1.png").write_bytes((folder / "photo_1.png").read_bytes()[:500])


def a_text(folder):
    folder.write_text("not a video")


def an_empty_folder(folder):
    folder.mkdir()


FAILURES = {
    two_groups: "form 2 groups with nothing in common: a_0.png, a_1.png and a_2.png; b_0.png, b_1.png and b_2.png",
    two_pictures: "holds 2 photographs; at least 3 are needed",
    no_texture: "none of the 4 photographs has 15 points in common with another",
    no_pictures: "holds no PNG, JPEG or WebP; IMG_1.HEIC: HEIC, left out; run `pip install -r requirements-heic.txt`",
    one_is_cut_short: "photo_1.png: cannot be decoded",
    a_text: "is not a video that OpenCV can decode",
    an_empty_folder: "holds no .png, .jpg, .jpeg or .webp photographs",
}


@pytest.mark.parametrize("make", FAILURES, ids=lambda make: make.__name__)
def test_a_failure_is_explained_in_one_sentence(tmp_path, make):
    make(tmp_path / "photos")
    with pytest.raises(UserError, match=FAILURES[make]) as caught:
        prepare(request(tmp_path), str)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "scene").exists(), "nothing is left that nobody could go on from"


def test_photographs_of_something_else_are_left_out_and_named(tmp_path):
    rendered_photographs.write_photographs(tmp_path / "photos", 5)
    write_image(tmp_path / "photos" / "stray.png", rendered_photographs.render(*_other_view()))
    said = []
    assert prepare(request(tmp_path), said.append)
    assert any("no camera was found for 1 of 6 photographs: stray.png" in line for line in said)
    assert read(tmp_path / "scene").n_views == 5


def test_only_photographs_without_a_camera_are_left_out():
    models = [{"names": list("abcde")}, {"names": list("bx")}, {"names": list("cd")}]
    (note,) = reconstruct._notes(models, {name: f"{name}.jpg" for name in "abcdex"}, [], [])
    assert note.endswith("2 models without a common frame; the largest, of 5 photographs, is kept, left out: x.jpg")
    assert not reconstruct._notes([models[0], models[2]], {name: name for name in "abcde"}, [], [])


def _other_view():
    return rendered_photographs.poses(1)[0], rendered_photographs.textures(9)


def die(report):
    os.abort()


def fail(report):
    raise ValueError("two\nlines")


def exhaust(report):
    raise ImportError("failed to map segment from shared object")


@pytest.mark.parametrize(("task", "words"), [(die, "ended with status -6"), (fail, "two lines")])
def test_a_child_that_fails_says_how(tmp_path, task, words):
    with pytest.raises(ChildError, match=words):
        run_apart(task, log=tmp_path / "log")


def test_memory_that_runs_out_in_a_child_is_not_its_input(tmp_path):
    with pytest.raises(MemoryError, match="failed to map"):
        run_apart(exhaust, log=tmp_path / "log")


def test_a_focal_length_in_exif_is_where_the_search_starts(tmp_path):
    surfaces, poses = rendered_photographs.textures(1), rendered_photographs.poses(4)
    (tmp_path / "photos").mkdir()
    for index, pose in enumerate(poses):
        exif = Image.Exif()
        exif.get_ifd(0x8769)[0xA405] = 36  # mm: 333 pixels of 320 x 240
        Image.fromarray(rendered_photographs.render(pose, surfaces)).save(
            tmp_path / "photos" / f"IMG {index}.jpg", exif=exif, quality=95
        )
    said = []
    assert prepare(request(tmp_path), said.append)
    assert said[0] == "4 photographs of 320x240 share one camera, known focal length 333 px"
    degrees, _ = compare_cameras.compare(poses, compare_cameras.poses_of(tmp_path / "scene"))
    assert degrees.max() < 0.5
