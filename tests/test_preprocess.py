"""From captures to scenes: sizes, masks, frames, the views held out, and photographs that were removed."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from rigs import project
from synthetic_scene import SCALE_MAT, dataset_config, draw_sphere, look_at, write_scene

from data.errors import SceneError, UserError
from data.io.headers import ImageError
from data.io.named_files import numbers_in_names
from data.parsed_scene import Lens, ParsedScene, PosedImage, WorldFrame
from data.prepare.inspection.epipolar import cameras
from data.prepare.load import load_held_out, load_scene
from data.scenes.backdrop import backdrop_colours, backdrop_mask
from data.scenes.config import split
from data.scenes.preprocess import preprocess
from data.scenes.scene_checks import summary

SIZES = ((64, 48), (80, 60), (48, 64))
CONF = dataset_config(".")
WORLD = np.array([[0.0, -2, 0, 1], [2, 0, 0, -3], [0, 0, 2, 0.5], [0, 0, 0, 1]])  # the unit sphere, in a turned world


def lens_of(size, focal=1.6):
    return Lens(np.array([[focal * size[0], 0, 0.52 * size[0]], [0, focal * size[0], 0.47 * size[1]], [0, 0, 1.0]]))


def parsed_scene_of(folder):
    """Photographs of a coloured sphere of half the region's radius, each with a lens and a size of its own."""
    posed_images = []
    for index, size in enumerate(SIZES):
        lens = lens_of(size, focal=1.4 + 0.2 * index)
        c2w = look_at(3.0 * np.array([np.cos(2.0 * index), np.sin(2.0 * index), 0.4]))
        rgb, hit = draw_sphere(lens.intrinsics, c2w, size[1], size[0], 0.5)
        image, mask = folder / f"{index}.png", folder / f"mask{index}.png"
        cv2.imwrite(str(image), np.rint(rgb[..., ::-1] * 255).astype(np.uint8))
        cv2.imwrite(str(mask), hit.astype(np.uint8) * 255)
        world = WORLD @ c2w
        world[:3, :3] /= 2.0  # a pose has no scale
        posed_images.append(PosedImage(image, lens, world, mask))
    return ParsedScene("spheres", folder, tuple(posed_images), scale_mat=WORLD)


def test_views_of_different_sizes_and_lenses_agree_in_the_working_frame(tmp_path):
    parsed = parsed_scene_of(tmp_path)
    scene = preprocess(parsed, parsed.images, CONF)
    assert [scene.size(view) for view in range(3)] == list(SIZES)
    assert summary(scene).endswith("world units")  # sizes: equal areas: the first of them
    assert "48x64 to 80x60" in summary(scene)
    assert summary(replace(scene, frame=WorldFrame("the floor", "4 markers"))).endswith(" m")
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (30, 3))
    for view, posed in enumerate(parsed.images):
        rays, shape = scene.rays(view)
        closest = np.linalg.norm(np.cross(rays.origins, rays.directions), axis=1)
        assert shape == SIZES[view][::-1]
        np.testing.assert_array_equal((closest < 0.5).reshape(shape), scene.masks[view] == 255)
        before, _ = project(points @ WORLD[:3, :3].T + WORLD[:3, 3], posed.lens.intrinsics, posed.c2w)
        after, _ = project(points, scene.intrinsics[view], scene.c2w[view])
        np.testing.assert_allclose(after, before, atol=1e-9)


def test_alpha_is_the_mask_and_the_picture_lies_over_the_background(tmp_path):
    parsed = parsed_scene_of(tmp_path)
    for posed in parsed.images:
        picture, mask = cv2.imread(str(posed.path)), cv2.imread(str(posed.mask_path), cv2.IMREAD_GRAYSCALE)
        cv2.imwrite(str(posed.path), np.dstack([picture, mask]))
    scene = preprocess(parsed, [replace(posed, mask_path=None) for posed in parsed.images], CONF, 1.0)
    for image, mask in zip(scene.images, scene.masks, strict=True):
        assert set(np.unique(mask)) == {0, 255}
        assert (image[mask == 0] == 255).all() and (image[mask == 255] != 255).any()


def test_the_users_region_replaces_the_formats_in_the_same_world(tmp_path):
    parsed = parsed_scene_of(tmp_path)
    scene = preprocess(parsed, parsed.images, replace(CONF, roi="1 -3 0.6 1.5"))
    np.testing.assert_allclose(scene.scene_to_world[:3, 3], [1, -3, 0.6])
    np.testing.assert_allclose(scene.bbox_max, [1.01] * 3)
    centres = [(scene.scene_to_world @ pose[:, 3])[:3] for pose in scene.c2w]
    np.testing.assert_allclose(centres, [posed.c2w[:3, 3] for posed in parsed.images], atol=1e-9)


def test_what_does_not_belong_together_is_named(tmp_path):
    for change, words in (
        (lambda first, lens: {"mask_path": first.mask_path}, ["mask0.png: is 64x48", "1.png 80x60"]),
        (lambda first, lens: {"lens": first.lens}, ["1.png: is 80x60 pixels and 0.png 64x48", "same intrinsics"]),
    ):
        parsed = parsed_scene_of(tmp_path)
        first, second, third = parsed.images
        with pytest.raises((SceneError, ImageError)) as caught:
            preprocess(parsed, [first, replace(second, **change(first, second.lens)), third], CONF)
        assert [word for word in words if word not in str(caught.value)] == []


def test_every_way_of_holding_out_views_and_lists_that_cannot_be():
    for keys, expected in (
        ({}, [[0, 1, 2, 3, 4, 5], [], [6, 7]]),
        ({"test_every": 3}, [[1, 2, 4, 5], [], [0, 3]]),
        ({"test_every": 3, "validation_views": (3, 5)}, [[1, 2, 4], [3, 5], [0]]),
        ({"test_views": (4, 1), "test_every": 3}, [[0, 2, 3, 5], [], [4, 1]]),
        ({"train_views": (5, 2), "validation_views": (0,)}, [[5, 2], [0], [6, 7]]),
        ({"test_views": (6,)}, "dataset.test_views: there is no photograph 6; scene has 0 to 5"),
        ({"train_views": (2, 2)}, "names photograph 2 twice"),
        ({"train_views": (3, 2), "test_every": 3}, "photograph 3 is in two of dataset.train_views"),
        ({"test_views": (4,), "validation_views": (4,)}, "photograph 4 is in two of"),
        ({"test_every": 1}, "no photograph is left to train on"),
    ):
        folder = Path("scene")
        posed_images = [PosedImage(folder / f"{n}.png", lens_of((8, 8)), np.eye(4), None, n >= 6) for n in range(8)]
        parsed, conf = ParsedScene("x", folder, tuple(posed_images)), replace(CONF, **keys)
        if isinstance(expected, str):
            with pytest.raises(SceneError, match=expected):
                split(parsed, conf)
        else:
            found = split(parsed, conf)
            groups = (found.training, found.validation, found.test)
            assert [[int(posed.path.stem) for posed in group] for group in groups] == expected


def test_openings_are_backdrop_and_specks_of_its_colour_are_not():
    image = np.full((100, 200, 3), 250, np.uint8)
    image[20:80, 40:160] = 90
    image[40:50, 60:70] = 250  # an opening: 0.5 % of the image
    image[60:63, 100:103], image[5, 5] = 250, 0  # a highlight, 0.05 %, and noise
    expected = np.zeros((100, 200), np.uint8)
    expected[20:80, 40:160], expected[40:50, 60:70] = 255, 0
    np.testing.assert_array_equal(backdrop_mask(image, *backdrop_colours([image])), expected)


def test_held_out_views_share_frame_and_backdrop_of_the_training_views(tmp_path):
    written = write_scene(tmp_path, n_views=5, masks=False)
    conf = replace(dataset_config(tmp_path), test_every=2, masks_from_backdrop=True)
    training = load_scene(conf)
    held_out = load_held_out(conf, training)
    assert training.image_names == ("001.png", "003.png")
    assert held_out.image_names == ("000.png", "002.png", "004.png")
    np.testing.assert_array_equal(held_out.scene_to_world, SCALE_MAT)
    np.testing.assert_allclose(held_out.c2w, written.c2w[::2], atol=1e-9)
    np.testing.assert_array_equal(held_out.backdrop, training.backdrop)
    assert len(held_out.masks) == 3 and all((mask > 0).any() and (mask == 0).any() for mask in held_out.masks)
    assert load_held_out(conf, load_scene(replace(conf, masks_from_backdrop=False))).masks is None
    assert load_held_out(dataset_config(tmp_path), training) is None


def renamed(folder, kinds, names):
    """The files of the kinds, in order, under new names; None removes one."""
    for kind in kinds:
        for path, name in zip(sorted((folder / kind).iterdir()), names, strict=True):
            path.unlink() if name is None else path.rename(path.with_name(f"_{name}"))
        for path in list((folder / kind).iterdir()):
            path.rename(path.with_name(path.name[1:]))


def test_names_are_numbered_where_one_number_tells_them_apart():
    for names, expected in (
        (["000.png", "001.png", "010.png"], [0, 1, 10]),
        (["scan24_1.png", "scan24_3.jpg"], [1, 3]),
        (["rect_001_3_r5000.png", "rect_002_3_r5000.png"], [1, 2]),
        (["1.png", "01.png"], None),
        (["left1.png", "right1.png"], None),
    ):
        assert numbers_in_names([Path(name) for name in names]) == expected


def test_a_gap_that_has_a_camera_is_refused(tmp_path):
    write_scene(tmp_path, n_views=5)
    renamed(tmp_path, ("image", "mask"), ["a_0.png", "a_1.png", None, None, "a_4.png"])
    with pytest.raises(UserError, match="skip 2 and 3, .*has 5 cameras .*from a_4.png on.*dataset.train_views"):
        load_scene(dataset_config(tmp_path))


def test_masks_of_other_numbers_are_refused_and_other_spellings_are_not(tmp_path):
    write_scene(tmp_path, n_views=4)
    renamed(tmp_path, ("image",), ["000000.png", "000001.png", "000002.png", "000003.png"])
    assert load_scene(dataset_config(tmp_path)).n_views == 4
    renamed(tmp_path, ("mask",), ["000.png", "001.png", "003.png", "004.png"])
    with pytest.raises(UserError, match="003.png is the mask of 000002.png, but their numbers differ.*restore"):
        load_scene(dataset_config(tmp_path))


def test_more_cameras_than_photographs_are_said_once_and_marked(tmp_path):
    write_scene(tmp_path, n_views=5)
    renamed(tmp_path, ("image", "mask"), ["000.png", "001.png", "002.png", "003.png", None])
    scene = load_scene(dataset_config(tmp_path))
    assert scene.n_views == 4 and scene.spare_cameras == 1
    assert sum("has 5 cameras for 4 photographs" in note for note in scene.notes) == 1
    finding = cameras(scene)
    assert finding.verdict != "good" and finding.figure.startswith("1 more than photographs; ")
