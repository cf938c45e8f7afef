"""--cameras: photographs of a new object by the rig of an earlier case need no features; another lens is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from preparations import forbid, lines_of, read, refuse
from rendered_photographs import FOCAL, HEIGHT, WIDTH, poses, write_photographs
from scipy.spatial.transform import Rotation
from synthetic_scene import draw_sphere, save, write_scene

from data.scenes.readers.neus import camera_matrices

SIZE = (96, 128)  # height, width


def photograph(folder, scene, zoomed=None, size=SIZE):
    """A smaller ball of one colour by the cameras of a scene, one of which may be `zoomed`, with masks."""
    for index, pose in enumerate(scene.c2w):
        zoom = np.diag([1.2, 1.2, 1.0]) if index == zoomed else np.eye(3)
        centred = scene.intrinsics.copy()
        centred[:2] = (zoom @ centred)[:2]
        centred[:2, 2] = scene.intrinsics[:2, 2]
        _, hit = draw_sphere(centred, pose, *size, 0.4)
        image = np.where(hit[..., None], 200, 40).astype(np.uint8).repeat(3, 2)
        image[0, 0] = index  # equal files are used once
        save(folder / "photos" / f"{index:03d}.png", image)
        save(folder / "given" / f"{index:03d}.png", (hit * 255).astype(np.uint8))
    return {"cameras": "earlier", "masks": str(folder / "given")}


def relative(poses):
    """What does not depend on the world frame: the first camera's view of the others, in units of their distance."""
    found = np.linalg.inv(poses[0]) @ poses
    found[:, :3, 3] /= np.linalg.norm(found[1, :3, 3])
    return found


def test_a_rig_photographs_an_object_without_features(tmp_path, monkeypatch):
    scene = write_scene(tmp_path / "earlier", n_views=10, size=SIZE)
    forbid(monkeypatch, "find_features", "match_features", "map_images")
    said = lines_of(tmp_path, **photograph(tmp_path, scene))
    written = read(tmp_path / "scene")
    assert np.allclose(relative(written.c2w), relative(scene.c2w), atol=1e-6)
    assert np.allclose(written.intrinsics, scene.intrinsics, atol=1e-4)
    assert any("by the names of the photographs" in line for line in said)
    assert any(line.startswith("given cameras: masks overlap their visual hull by") for line in said)
    assert np.median(np.linalg.norm(written.c2w[:, :3, 3], axis=1)) > 1  # the region follows the new object


def test_photographs_of_other_names_are_matched_by_order(tmp_path):
    scene = write_scene(tmp_path / "earlier", n_views=4, size=SIZE)
    options = photograph(tmp_path, scene)
    for kind in ("photos", "given"):
        for path in sorted((tmp_path / kind).iterdir()):
            path.rename(path.with_name(f"new_{path.name}"))
    assert any("in the order of the photographs" in line for line in lines_of(tmp_path, **options))
    assert np.allclose(relative(read(tmp_path / "scene").c2w), relative(scene.c2w), atol=1e-6)
    (tmp_path / "photos/new_003.png").rename(tmp_path / "photos/003.png")
    (tmp_path / "given/new_003.png").rename(tmp_path / "given/003.png")
    refuse("has no camera for 3 of 4 photographs: new_000.png", tmp_path, **options, overwrite=True)


def bare_colmap(folder, scene):
    """cameras.txt and images.txt of a scene, without photographs."""
    fx, fy, x, y = *np.diag(scene.intrinsics)[:2], *(scene.intrinsics[:2, 2] + 0.5)
    rows = []
    for index, w2c in enumerate(np.linalg.inv(scene.c2w)):
        turn = np.roll(Rotation.from_matrix(w2c[:3, :3]).as_quat(), 1)
        rows += [" ".join(map(str, [index, *turn, *w2c[:3, 3], 1, f"rig/{index:03d}.jpg"])), ""]
    (folder / "model").mkdir()
    (folder / "model/cameras.txt").write_text(f"1 PINHOLE {SIZE[1]} {SIZE[0]} {fx} {fy} {x} {y}")
    (folder / "model/images.txt").write_text("\n".join(rows))
    return "model"


def splat_cameras(folder, scene):
    """cameras.json of 3DGS."""
    size = {"width": SIZE[1], "height": SIZE[0], "fx": scene.intrinsics[0, 0], "fy": scene.intrinsics[1, 1]}
    rows = [
        {"img_name": f"{index:03d}", "position": pose[:3, 3].tolist(), "rotation": pose[:3, :3].tolist(), **size}
        for index, pose in enumerate(scene.c2w)
    ]
    (folder / "splats").mkdir()
    (folder / "splats/cameras.json").write_text(json.dumps(rows))
    return "splats"


@pytest.mark.parametrize("write", [bare_colmap, splat_cameras])
def test_cameras_of_a_model_without_photographs_are_used(tmp_path, write):
    scene = write_scene(tmp_path / "earlier", n_views=10, size=SIZE)
    options = photograph(tmp_path, scene) | {"cameras": write(tmp_path, scene)}
    shutil.rmtree(tmp_path / "earlier")
    said = lines_of(tmp_path, **options)
    written = read(tmp_path / "scene")
    assert np.allclose(relative(written.c2w), relative(scene.c2w), atol=1e-6)
    assert np.allclose(written.intrinsics, scene.intrinsics, atol=1.01)  # the centre of 3DGS is that of the image
    assert any("by the names of the photographs" in line for line in said)


def test_damaged_cameras_of_splats_are_refused(tmp_path):
    scene = write_scene(tmp_path / "earlier", n_views=4, size=SIZE)
    options = photograph(tmp_path, scene) | {"cameras": str(tmp_path / "cameras.json")}
    row = {
        "img_name": "000",
        "width": 9,
        "height": 9,
        "fx": 9,
        "fy": 9,
        "position": [0, 0],
        "rotation": np.eye(3).tolist(),
    }
    contents = {"[": "JSON", "[]": "holds no cameras", "[1]": "is not a list of objects"}
    contents[json.dumps([row])] = "000: position is"
    for content, words in contents.items():
        (tmp_path / "cameras.json").write_text(content)
        refuse(words, tmp_path, **options)


def test_a_changed_lens_and_unusable_cameras_are_refused(tmp_path):
    scene = write_scene(tmp_path / "earlier", n_views=10, size=SIZE)
    refuse(r"view 3 \(003.png\): masks overlap .* by \d+% or more; a lens", tmp_path, **photograph(tmp_path, scene, 3))
    assert not (tmp_path / "scene/cameras_sphere.npz").exists()
    options = photograph(tmp_path, scene, size=(96, 96))
    refuse("has 128x96 pixels, and the photo 96x96, another shape", tmp_path, **options)
    refuse("is no folder, and no case in", tmp_path, **{**options, "cameras": "nothing"})
    one = replace(scene, c2w=scene.c2w[:1].repeat(10, axis=0))
    still = photograph(tmp_path, scene) | {"cameras": bare_colmap(tmp_path, one)}
    refuse("^--cameras .*model: all its cameras are at one position; name a case with a rig", tmp_path, **still)
    beside = one.c2w.copy()
    beside[:, 0, 3] += 0.1 * np.arange(10)
    shutil.rmtree(tmp_path / "model")
    side = still | {"cameras": bare_colmap(tmp_path, replace(scene, c2w=beside)), "masks": ""}
    refuse(f"^{tmp_path / 'scene'}: the cameras look along parallel axes", tmp_path, **side)
    shutil.rmtree(tmp_path / "scene", ignore_errors=True)
    (tmp_path / "earlier").rename(tmp_path / "scene")
    before = sorted((tmp_path / "scene").rglob("*"))
    own = {**options, "cameras": str(tmp_path / "scene"), "overwrite": True}
    refuse("is the scene that this call writes; choose another --case", tmp_path, **own)
    assert sorted((tmp_path / "scene").rglob("*")) == before
    refuse("needs a folder of photographs, no video", tmp_path, **{**options, "is_panorama": True, "masks": ""})


def test_cameras_of_a_prepared_case_are_those_of_its_photographs(copied_scene):
    lines_of(copied_scene, target=copied_scene / "second", cameras="scene")
    before, again = read(copied_scene / "scene"), read(copied_scene / "second")
    assert again.photographs == before.photographs and again.frame.up_source == before.frame.up_source
    world = [
        scene.scene_to_world[:3, :3] @ scene.c2w[:, :3, 3:] + scene.scene_to_world[:3, 3:] for scene in (before, again)
    ]
    assert np.allclose(*world, atol=1e-5)
    assert np.allclose(before.intrinsics, again.intrinsics, rtol=1e-4)
    shutil.rmtree(copied_scene / "scene/prepare")
    refuse(
        "is damaged or missing, which has lenses and poses",
        copied_scene,
        target=copied_scene / "third",
        cameras="scene",
    )


def calibrated(folder, focal):
    """A scene folder of photographs by a lens of this focal length."""
    write_photographs(folder / "earlier/image", 3, seed=2)
    intrinsics = np.array([[focal, 0, (WIDTH - 1) / 2], [0, focal, (HEIGHT - 1) / 2], [0, 0, 1.0]])
    matrices = camera_matrices(np.array([intrinsics] * 3), poses(3), np.eye(4))
    np.savez(folder / "earlier/cameras_sphere.npz", **matrices)


def test_the_lens_of_an_earlier_case_is_kept_constant(tmp_path):
    calibrated(tmp_path, FOCAL)
    truth = write_photographs(tmp_path / "photos", 5)
    lines_of(tmp_path, lens="earlier")
    written = read(tmp_path / "scene")
    assert np.allclose(written.intrinsics[:, :2, :2], FOCAL * np.eye(2), rtol=1e-5)
    assert np.allclose(relative(written.c2w)[:, :3, 3], relative(truth)[:, :3, 3], atol=0.01)


def test_another_focal_length_than_that_of_the_lens_is_refused_with_a_figure(tmp_path):
    calibrated(tmp_path, 0.85 * FOCAL)
    write_photographs(tmp_path / "photos", 5)
    refuse(
        r"--lens: the photographs fit a focal length \+1\d\.\d% off, with a reprojection error of",
        tmp_path,
        lens="earlier",
    )
