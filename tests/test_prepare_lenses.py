"""Lenses that are not what was assumed: several of one size, focal lengths of EXIF that are wrong, no points."""

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from synthetic_scene import look_at

from data.cameras import similarity
from data.errors import UserError
from data.prepare.frames import Frame
from data.prepare.sfm import lenses, mapping, reconstruct, stages

pycolmap = pytest.importorskip("pycolmap")
IMAGES, SIZE = 12, (1024, 768)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A work folder with exact matches of images by one camera; a relative path, as that of a case."""
    monkeypatch.chdir(tmp_path)
    work = Path("scene")
    pycolmap.set_random_seed(0)
    options = pycolmap.SyntheticDatasetOptions(
        num_rigs=1, num_cameras_per_rig=1, num_frames_per_rig=IMAGES, num_points3D=200
    )
    options.camera_width, options.camera_height = SIZE
    options.camera_model_id, options.camera_params = pycolmap.CameraModelId.SIMPLE_RADIAL, [1200.0, 512.0, 384.0, 0.0]
    (work / "database").mkdir(parents=True)
    (work / stages.IMAGES).mkdir()
    with contextlib.closing(pycolmap.Database.open(str(work / stages.DATABASE))) as opened:
        pycolmap.synthesize_dataset(options, opened)
    return work


def zoom(work, factors):
    """Enlarge the keypoints of the images about their centres; returns the frames."""
    middle = np.array(SIZE) / 2
    with contextlib.closing(pycolmap.Database.open(str(work / stages.DATABASE))) as opened:
        images = sorted(opened.read_all_images(), key=lambda image: image.name)
        for image, factor in zip(images, factors, strict=True):
            keypoints = np.asarray(opened.read_keypoints(image.image_id)).copy()
            keypoints[:, :2] = middle + factor * (keypoints[:, :2] - middle)
            opened.update_keypoints(image.image_id, keypoints)
    return [Frame(image.name, f"{image.name}.jpg", *SIZE, None) for image in images]


def focals(work):
    model = pycolmap.Reconstruction(str(work / stages.MODELS / "0"))
    return [
        model.cameras[image.camera_id].mean_focal_length()
        for image in sorted(model.images.values(), key=lambda image: image.name)
    ]


def assume(work, lens, is_prior=False):
    """Give all images one camera with this focal length."""
    path = str(work / stages.DATABASE)
    with contextlib.closing(pycolmap.Database.open(path)) as opened:
        names = sorted(image.name for image in opened.read_all_images())
    lenses.give_lenses(print, path, [(names, lens)])
    if is_prior:
        with contextlib.closing(pycolmap.Database.open(path)) as opened:
            for camera in opened.read_all_cameras():
                camera.has_prior_focal_length = True
                opened.update_camera(camera)


@pytest.mark.slow
def test_two_lenses_of_one_size_are_told_apart(work):
    frames = zoom(work, [1.0] * 6 + [1.2] * 6)
    assume(work, None)
    found = reconstruct.map_images(work, frames)
    assert np.allclose(focals(work), [1200.0] * 6 + [1440.0] * 6, rtol=5e-3)
    assert found["error"] < 0.05 and len(found["names"]) == IMAGES
    (note,) = found["notes"]
    assert note.startswith("the cameras are estimated with 2 lenses instead of 1, which fits better: reprojection")
    assert not (work / stages.FURTHER).exists()


def test_focal_lengths_of_exif_that_are_doubtful_are_left_out(work):
    zoom(work, [1.0] * IMAGES)
    assume(work, 500.0, is_prior=True)
    path = str(work / stages.DATABASE)
    with contextlib.closing(pycolmap.Database.open(path)) as opened:
        (key,) = {image.camera_id for image in opened.read_all_images()}
    options = pycolmap.SyntheticDatasetOptions(num_rigs=1, num_cameras_per_rig=1, num_frames_per_rig=4)
    model = pycolmap.synthesize_dataset(options)
    camera = pycolmap.Camera.create_from_model_name(key, "SIMPLE_RADIAL", 1200.0, *SIZE)
    model.add_camera(camera) if not model.exists_camera(key) else setattr(model.cameras[key], "params", camera.params)
    ((words, proposed),) = lenses.other_lenses(model, path)
    assert words == lenses.WITHOUT_EXIF and [focal for _, focal in proposed] == [None]
    lenses.give_lenses(print, path, proposed)
    with contextlib.closing(pycolmap.Database.open(path)) as opened:
        (key,) = {image.camera_id for image in opened.read_all_images()}
        assert not opened.read_camera(key).has_prior_focal_length
        assert opened.num_verified_image_pairs() == IMAGES * (IMAGES - 1) // 2, "their matches are verified again"


def mappers(monkeypatch, results):
    """`mapped` gives these results, one after the other; returns the sources it was called with."""
    sources, left = [], iter(results)
    monkeypatch.setattr(
        reconstruct, "mapped", lambda work, frames, source, models: sources.append(source) or next(left)
    )
    monkeypatch.setattr(reconstruct, "apart", lambda *given: None)
    return sources


def result(points, score, proposed=(), error=1.0):
    model = {
        "folder": "0",
        "names": [f"{i}.png" for i in range(4)],
        "points": points,
        "error": error,
        "errors": {},
        "weak": [],
    }
    return mapping.MappingResult("incremental", {"incremental": 4}, [model], score, other_lenses=proposed)


def four_frames(work):
    (work / "database").mkdir()
    with contextlib.closing(pycolmap.Database.open(str(work / stages.DATABASE))):
        pass
    return [Frame(f"{i}.png", f"{i}.jpg", 64, 48, None) for i in range(4)]


def test_a_model_without_points_is_refused_after_other_focal_lengths(tmp_path, monkeypatch):
    frames = four_frames(tmp_path)
    proposed = [(f"from a focal length of {widths:g} widths", []) for widths in lenses.LONG_FOCALS]
    sources = mappers(monkeypatch, [result(0, (4, 900), proposed), *[result(11, (4, 900))] * 3])
    with pytest.raises(UserError, match="only 0 points could be located, so the camera hardly moved, or a long lens"):
        reconstruct.map_images(tmp_path, frames)
    assert len(sources) == 4 and not any(source.is_optional for source in sources)
    mappers(monkeypatch, [result(0, (4, 900))])
    known = [replace(frame, lens="PINHOLE 60 60 32 24") for frame in frames]
    with pytest.raises(UserError, match="0 points could be located, .* hardly moved or the lens of --lens is another"):
        reconstruct.map_images(tmp_path, known)


@pytest.mark.parametrize("strong", [4, 3])
def test_few_cameras_although_photographs_match_say_that_sides_look_alike(strong, tmp_path, monkeypatch):
    frames = four_frames(tmp_path) + [Frame(f"{i}.png", f"{i}.jpg", 64, 48, None) for i in range(4, 8)]
    links = {("0.jpg", f"{i}.jpg"): 30 if i < 4 + strong else 29 for i in range(4, 8)}
    monkeypatch.setattr(reconstruct.matches, "read_links", lambda *given: links)
    monkeypatch.setattr(reconstruct, "_has_more", lambda *given: False)
    mappers(monkeypatch, [result(900, (4, 900))])
    with pytest.raises(UserError, match="cameras were found for 4 of 8 photographs only: ") as caught:
        reconstruct.map_images(tmp_path, frames)
    assert ("sides that look alike" in str(caught.value)) == (strong == 4)


@pytest.mark.parametrize(
    ("score", "error", "points"), [((4, 900), 0.5, 400), ((4, 901), 1.2, 400), ((4, 901), 0.5, 500)]
)
def test_the_better_of_both_stays(score, error, points, tmp_path, monkeypatch):
    frames = four_frames(tmp_path)
    proposed = [("with 2 lenses instead of 1", [])]
    sources = mappers(monkeypatch, [result(400, (4, 900), proposed), result(500, score, error=error)])
    monkeypatch.setattr(reconstruct, "_used", lambda *given: None)
    found = reconstruct.map_images(tmp_path, frames)
    assert found["points"] == points and len(found["notes"]) == (points == 500) and sources[1].is_optional
    assert found["limit"] == ""
    assert found["remarks"] == found["notes"], "recorded with the scene, for inspect and result.md"


def test_what_is_proposed(tmp_path, monkeypatch):
    path = str(tmp_path / "matches.db")
    options = pycolmap.SyntheticDatasetOptions(
        num_rigs=1, num_cameras_per_rig=1, num_frames_per_rig=4, num_points3D=60, camera_has_prior_focal_length=False
    )
    with contextlib.closing(pycolmap.Database.open(path)) as opened:
        model = pycolmap.synthesize_dataset(options, opened)
    assert lenses.other_lenses(model, path) == [], "one lens fits"
    assert [words for words, _ in lenses.other_lenses(None, path)] == [
        f"from a focal length of {widths:g} widths" for widths in lenses.LONG_FOCALS
    ]
    seen = {}
    monkeypatch.setattr(pycolmap, "incremental_mapping", lambda *given, options, **events: seen.update(o=options) or {})
    mapping._incremental(print, path, "images", 1, 9, False)
    assert seen["o"].max_focal_length_ratio >= 57, "2000 mm, the longest that EXIF is believed"


def crops(count, seed=0):
    """A model of photographs that are cropped by up to a tenth of each side, half of them reduced then; the poses."""
    rng, model = np.random.default_rng(seed), pycolmap.Reconstruction()
    points, poses, focal = rng.uniform(-0.7, 0.7, (200, 3)), [], 440.0
    for key in range(1, count + 1):
        angle = 2 * np.pi * key / count
        poses.append(np.linalg.inv(look_at(3 * np.array([np.cos(angle), np.sin(angle), 0.3 + 0.3 * (key % 3)])))[:3])
        (left, top), (right, bottom) = rng.integers(0, 40, (2, 2))
        scale = 1.0 if key % 2 else 0.5
        width, height = round(scale * (400 - left - right)), round(scale * (300 - top - bottom))
        seen = points @ poses[-1][:, :3].T + poses[-1][:, 3]
        flat = seen[:, :2] / seen[:, 2:]
        flat = flat * (1 - 0.05 * np.sum(flat**2, axis=1, keepdims=True))
        pixels = scale * (focal * flat + [200 - left, 150 - top]) + rng.normal(0, 0.1, (200, 2))
        camera = pycolmap.Camera.create_from_model_name(key, "SIMPLE_RADIAL", scale * focal, width, height)
        model.add_camera_with_trivial_rig(camera)
        image = pycolmap.Image(f"{key:02d}", pixels, key, key)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(poses[-1]))
    for index, point in enumerate(points):
        model.add_point3D(point, pycolmap.Track([pycolmap.TrackElement(key, index) for key in range(1, count + 1)]))
    pycolmap.bundle_adjustment(model, pycolmap.BundleAdjustmentOptions(print_summary=False))
    return model, np.array(poses)


def errors(model, poses):
    """Of the median camera: distance from its place, relative to that from the origin, and rotation in degrees."""
    centres = -np.einsum("vji,vj->vi", poses[:, :, :3], poses[:, :, 3])
    images = [model.images[key] for key in sorted(model.images)]
    at = np.array([image.projection_center() for image in images])
    turn, scale, shift = similarity(at, centres)
    turns = [
        (pose[:, :3] @ turn @ image.cam_from_world().rotation.matrix().T)
        for pose, image in zip(poses, images, strict=True)
    ]
    away = np.linalg.norm(scale * at @ turn.T + shift - centres, axis=1) / 3
    return np.median(away), np.degrees(np.median(Rotation.from_matrix(turns).magnitude()))


def test_the_centres_of_crops_are_estimated_with_one_focal_length():
    model, poses = crops(24)
    reductions = {f"{key:02d}": 1.0 if key % 2 else 0.5 for key in range(1, 25)}
    found, before = lenses.with_centres(model, reductions), errors(model, poses)
    assert found is not None and errors(found, poses)[0] < min(0.002, 0.2 * before[0])
    assert before[1] > 1.0 and errors(found, poses)[1] < 0.25
    assert lenses.with_centres(model, dict(list(reductions.items())[:7])) is None, "too few"
    assert lenses.with_centres(found, reductions) is None, "no better"
    values = [3 + (x - 0.5) ** 2 + 2 * (y + 0.25) ** 2 + 0.5 * (x - 0.5) * (y + 0.25) for x, y in lenses.PLACES]
    assert np.allclose(lenses.lowest(lenses.PLACES, values), [0.5, -0.25])
