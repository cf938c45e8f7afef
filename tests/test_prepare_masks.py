"""Masks found in colours, files and boxes on a few photographs; refused where there is nothing to find."""

from dataclasses import replace

import numpy as np
import pytest
from preparations import LONG_STEPS, forbid, lines_of, read, request
from rendered_photographs import picture, save_with_exif
from rigs import cloud, sphere_of_cameras, textured_scene

from data.errors import UserError
from data.io.images import read_image, write_image
from data.prepare import box_masks, masks
from data.prepare.box_masks import Box, find_boxes
from data.prepare.pipeline import prepare
from data.scenes.frustum import outline_pixels

pytestmark = pytest.mark.slow  # it prepares photographs


def disc(radius=35):
    """A noisy disc before a noisy backdrop, and where it is."""
    y, x = np.mgrid[:120, :160]
    truth = (x - 80) ** 2 + (y - 60) ** 2 < radius**2
    rgb = np.where(truth[..., None], (200, 30, 40), (30, 160, 60)) + np.random.default_rng(0).normal(
        0, 6, (120, 160, 3)
    )
    return np.clip(rgb, 0, 255).astype(np.uint8), truth


def overlap(mask, truth):
    return np.sum((mask > 127) & truth) / np.sum((mask > 127) | truth)


@pytest.mark.parametrize("radius", [35, 55])
def test_a_backdrop_of_one_colour_is_found_and_cut_away(tmp_path, radius):
    rgb, truth = disc(radius)
    write_image(tmp_path / "a.png", rgb)
    assert overlap(masks.finder("colorkey", [tmp_path / "a.png"])(rgb), truth) > 0.95


def test_grabcut_finds_what_differs_from_outside_the_sphere():
    rgb, truth = disc()
    pose = np.eye(4)
    pose[2, 3] = -3.0
    mask = masks.grab_cut(rgb, outline_pixels(np.array([[130.0, 0, 80], [0, 130, 60], [0, 0, 1]]), pose))
    assert overlap(mask, truth) > 0.9


@pytest.mark.parametrize("name", ["IMG_1.png", "IMG_1_mask.png", "IMG_1.JPG.mask.png", "IMG_1_mask.JPG"])
def test_masks_have_the_names_that_common_programs_give_them(tmp_path, name):
    write_image(tmp_path / "IMG_11.png", np.zeros((2, 2), np.uint8))
    with pytest.raises(UserError, match=r"1 of 2 photographs have no mask, the first is IMG_1\.jpg"):
        masks.require_masks(tmp_path, ["IMG_1.jpg", "IMG_11.jpg"])
    (tmp_path / name).write_bytes((tmp_path / "IMG_11.png").read_bytes())
    source = "IMG_1.JPG" if "JPG.mask" in name else "IMG_1.jpg"
    assert [path.name for path in masks.require_masks(tmp_path, [source, "IMG_11.jpg"])] == [name, "IMG_11.png"]


def test_a_mask_is_turned_with_its_photograph(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), orientation=6)
    stored = np.zeros((20, 30), np.uint8)
    stored[2:5, 7:20] = 255
    for pixels in (stored, np.rot90(stored, -1).copy()):
        write_image(tmp_path / "mask.png", pixels)
        mask = masks.read_mask(tmp_path / "mask.png", (20, 30), tmp_path / "a.jpg")
        assert np.array_equal(mask, np.rot90(stored, -1))


def test_rembg_is_asked_for_only_where_it_and_its_model_are_there(monkeypatch, tmp_path):
    monkeypatch.setenv("U2NET_HOME", str(tmp_path))
    for found, words in ((None, "the package rembg is missing"), (object(), "its model u2net.onnx is not in")):
        monkeypatch.setattr(masks.importlib.util, "find_spec", lambda name, found=found: found)
        with pytest.raises(UserError, match=words):
            masks.require_rembg()
    (tmp_path / "u2net.onnx").touch()
    masks.require_rembg()


POSES = sphere_of_cameras(12, middle=np.zeros(3))
AXES = 0.8 * np.array([0.9, 0.55, 0.6])


def scene(far=200):
    """The ellipsoid with points on it, and `far` of them on what lies around."""
    generator = np.random.default_rng(3)
    on_it, behind = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in generator.normal(size=(2, 600, 3)))
    points = np.concatenate([AXES * on_it[:400], 2.5 * behind[:far]])
    return replace(textured_scene(POSES, masks=False), points=cloud(points))


TRUTH = textured_scene(POSES).masks


def box_of(view, grown=2):
    """What bounds the true mask, as shares of the picture."""
    y, x = np.nonzero(TRUTH[view])
    size = np.tile(TRUTH[view].shape[::-1], 2)
    return np.clip(np.array([x.min() - grown, y.min() - grown, x.max() + 1 + grown, y.max() + 1 + grown]) / size, 0, 1)


def named(*views):
    return {f"{view:03d}.png": box_of(view) for view in views}


def overlaps(found):
    """The agreement of each mask with the true one."""
    pairs = [(mask > 127, truth > 127) for mask, truth in zip(found.masks, TRUTH, strict=True)]
    return [np.sum(mask & truth) / np.sum(mask | truth) for mask, truth in pairs]


@pytest.mark.parametrize("views", [(0,), (0, 5, 9)])
def test_a_few_boxes_make_masks_for_all_photographs(views):
    found = masks.cut_by_boxes(scene(), named(*views), has_region=True)
    assert min(overlaps(found)) > 0.85 and np.median(overlaps(found)) > 0.9
    assert f"boxes drawn on photographs: {len(views)}," in found.notes[-1]


def test_the_region_goes_around_what_the_boxes_hold_and_no_camera_moves():
    given = scene()
    given = replace(given, notes=("region of interest: the first", "another note"))
    found = masks.cut_by_boxes(given, named(0, 5, 9), has_region=False)
    radius = np.linalg.norm(found.scene_to_world[:3, 0])
    assert 0.72 < radius < 0.95 and np.linalg.norm(found.scene_to_world[:3, 3]) < 0.1  # the longest axis is 0.72
    assert f"radius {radius:.4g}, from" in found.notes[0] and found.notes[1] == "another note"
    for before, after in ((given.c2w[:, :3, 3], found.c2w[:, :3, 3]), (given.points.xyz, found.points.xyz)):
        assert np.allclose(after @ found.scene_to_world[:3, :3].T + found.scene_to_world[:3, 3], before)


def test_a_box_that_misses_the_object_is_told():
    missing, edge = np.array([0.0, 0.0, 0.15, 0.15]), box_of(5)
    half = np.array([edge[0], edge[1], edge[0] + 0.12, edge[3]])
    far_away = replace(scene(), points=cloud(scene().points.xyz * 3.0))
    grey = replace(scene(), images=tuple(np.full_like(image, 100) for image in scene().images))
    for given, drawn, words in (
        (scene(0), {"000.png": missing}, "the box of 000.png contains [0-9]+ SfM points, too few"),
        (scene(), {**named(0, 9), "005.png": half}, "box of 005.png contains [0-9]+% of the points in the other boxes"),
        (far_away, named(0), "are in the region of interest: the boxes miss the object"),
        (scene(), {"stray.png": missing}, "no camera was found for stray.png; draw on another photograph"),
        (grey, named(0, 5), "has the same colours as its surroundings"),
    ):
        with pytest.raises(UserError, match=words):
            masks.cut_by_boxes(given, drawn, True)


def test_points_on_a_part_are_told_unless_all_photographs_have_boxes():
    given = scene(0)
    foot = replace(given, points=cloud(given.points.xyz[given.points.xyz[:, 2] < -0.35]))
    words = r"transferred by [0-9]+ SfM points reproduce the masks .*009.png\) to only [0-9]+%.*--roi"
    with pytest.raises(UserError, match=words):
        masks.cut_by_boxes(foot, named(0, 5, 9), has_region=False)
    found = masks.cut_by_boxes(foot, named(*range(len(POSES))), has_region=True)
    assert min(overlaps(found)) > 0.85


@pytest.mark.parametrize(("box", "is_doubted"), [((0.4, 0.4, 0.6, 0.6), False), ((0.6, 0.1, 0.9, 0.9), True)])
def test_a_box_beside_what_the_photographs_look_at_is_doubted(box, is_doubted):
    assert box_masks.doubts(scene(), {0: box_of(0), 3: np.array([0.6, 0.1, 0.9, 0.9])}) == []
    found = box_masks.doubts(scene(), {3: np.array(box)})
    assert ["(003.png)" in line and "draw it again" in line for line in found] == [True] * is_doubted


def test_a_bad_file_is_one_sentence(tmp_path):
    write_image(tmp_path / "a.png", picture(20, 30))
    for content, words in (
        ("{", "cannot be read as JSON"),
        ('{"boxes": {"a.png": [1, 2, 3]}}', "a.png: is a list and must be four numbers"),
        ('{"boxes": {"z.png": [1, 2, 3, 9]}}', "z.png: no such photograph; there are a.png"),
        ('{"boxes": {"a.png": [9, 2, 3, 9]}}', "the box 9 2 3 9 contains none of the 30x20 pixels"),
    ):
        (tmp_path / box_masks.BOXES_FILE).write_text(content)
        with pytest.raises(UserError, match=words) as caught:
            find_boxes(tmp_path, tmp_path / "scene", (), [tmp_path / "a.png"])
        assert "boxes.json" in str(caught.value) and "\n" not in str(caught.value)


def test_a_box_is_in_pixels_of_the_upright_photograph(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), orientation=6)
    width, height = read_image(tmp_path / "a.jpg").shape[:2]  # turned
    found = find_boxes(tmp_path, tmp_path, [Box("a.jpg", (0, 0, width / 2, height), "--box")], [tmp_path / "a.jpg"])
    assert np.allclose(found["a.jpg"], [0, 0, 0.5, 1])


def test_boxes_become_masks_of_a_prepared_scene_which_can_be_replaced(copied_scene, monkeypatch):
    drawn = (Box("photo_1.png", (60, 40, 260, 200), "--box"),)

    def filled(picture, box):  # the corner's colours tell nothing
        mask = np.zeros(picture.shape[:2], np.uint8)
        mask[40:200, 60:260] = 255 * (box is not None)
        return mask

    monkeypatch.setattr(masks, "grab_cut_box", filled)
    forbid(monkeypatch, *LONG_STEPS)
    said = lines_of(copied_scene, masks="box", boxes=drawn, overwrite=True)
    assert any(line.startswith("boxes drawn on photographs: 1, transferred to the others by") for line in said)
    found = read(copied_scene / "scene")
    assert [np.mean(mask > 127) > 0.05 for mask in found.masks] == [True] * found.n_views

    own = np.zeros_like(found.masks[2])
    own[50:90, 60:100] = 255
    write_image(copied_scene / "scene" / "mask" / "002.png", own)
    assert not prepare(request(copied_scene, masks="box", boxes=drawn), str), "what was replaced stays"
    assert np.array_equal(read(copied_scene / "scene").masks[2], own)
