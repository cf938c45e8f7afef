"""From captures to scenes: sizes, masks, backgrounds, frames, and which views are held out."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from rigs import project
from synthetic_scene import SCALE_MAT, dataset_config, draw_sphere, look_at, write_scene

from data.errors import SceneError
from data.io.images import ImageError
from data.parsed_scene import Lens, ParsedScene, PosedImage, WorldFrame
from data.scenes.backdrop import backdrop_colours, backdrop_mask
from data.scenes.load import load_held_out, load_scene
from data.scenes.preprocess import preprocess
from data.scenes.scene import summary
from data.scenes.split import split

SIZES = ((64, 48), (80, 60), (48, 64))
CONF = dataset_config(".")
CONF_PATH = Path("scene")
WORLD = np.array([[0.0, -2, 0, 1], [2, 0, 0, -3], [0, 0, 2, 0.5], [0, 0, 0, 1]])  # the unit sphere, in a turned world


def centroid(weight):
    y, x = np.mgrid[: weight.shape[0], : weight.shape[1]]
    return np.array([(x * weight).sum(), (y * weight).sum()], float) / weight.sum()


def lens_of(size, focal=1.6):
    return Lens(np.array([[focal * size[0], 0, 0.52 * size[0]], [0, focal * size[0], 0.47 * size[1]], [0, 0, 1.0]]))


def parsed_scene_of(folder, sizes=SIZES, masks=True, alpha=False, background=(0, 0, 0)):
    """Photographs of a coloured sphere of half the region's radius, each with a lens and a size of its own."""
    posed_images = []
    for index, size in enumerate(sizes):
        lens = lens_of(size, focal=1.4 + 0.2 * index)
        c2w = look_at(3.0 * np.array([np.cos(2.0 * index), np.sin(2.0 * index), 0.4]))
        rgb, hit = draw_sphere(lens.intrinsics, c2w, size[1], size[0], 0.5)
        picture = np.where(hit[..., None], np.rint(rgb * 255), background).astype(np.uint8)[..., ::-1]
        if alpha:
            picture = np.dstack([picture, hit.astype(np.uint8) * 255])
        image, mask = folder / f"{index}.png", folder / f"mask{index}.png"
        cv2.imwrite(str(image), picture)
        cv2.imwrite(str(mask), hit.astype(np.uint8) * 255)
        world = WORLD @ c2w
        world[:3, :3] /= 2.0  # a pose has no scale
        posed_images.append(PosedImage(image, lens, world, mask if masks else None))
    return ParsedScene("spheres", folder, tuple(posed_images), scale_mat=WORLD)


def test_views_of_different_sizes_and_lenses_agree_in_the_working_frame(tmp_path):
    parsed = parsed_scene_of(tmp_path)
    scene = preprocess(parsed, parsed.images, CONF)
    assert [scene.size(view) for view in range(3)] == list(SIZES)
    assert "48x64 to 80x60" in summary(scene)  # equal areas: the first of them
    assert summary(scene).endswith("world units")
    assert summary(replace(scene, frame=WorldFrame("the floor", "4 markers"))).endswith(" m")
    for view, (width, height) in enumerate(SIZES):
        rays, shape = scene.rays(view)
        closest = np.linalg.norm(np.cross(rays.origins, rays.directions), axis=1)
        assert shape == (height, width)
        np.testing.assert_array_equal((closest < 0.5).reshape(shape), scene.masks[view] == 255)


def test_a_point_of_the_world_is_seen_at_the_same_pixel_by_capture_and_scene(tmp_path):
    parsed = parsed_scene_of(tmp_path)
    scene = preprocess(parsed, parsed.images, CONF)
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (30, 3))
    for view, posed in enumerate(parsed.images):
        world = points @ WORLD[:3, :3].T + WORLD[:3, 3]
        before, _ = project(world, posed.lens.intrinsics, posed.c2w)
        after, _ = project(points, scene.intrinsics[view], scene.c2w[view])
        np.testing.assert_allclose(after, before, atol=1e-9)


@pytest.mark.parametrize("downscale", [2, 3])
def test_a_reduced_scene_sees_the_same_sphere(tmp_path, downscale):
    parsed = parsed_scene_of(tmp_path, sizes=((640, 480), (490, 333)))
    scene = preprocess(parsed, parsed.images, replace(CONF, downscale=downscale))
    for view, (width, height) in enumerate(((640, 480), (490, 333))):
        assert scene.size(view) == (width // downscale, height // downscale)
        rays, shape = scene.rays(view)
        closest = np.linalg.norm(np.cross(rays.origins, rays.directions), axis=1).reshape(shape)
        # A wrong half pixel convention shifts by a quarter pixel or more.
        np.testing.assert_allclose(centroid(closest < 0.5), centroid(scene.masks[view]), atol=0.08)


@pytest.mark.parametrize("background", [0.0, 1.0])
def test_alpha_is_the_mask_and_the_picture_lies_over_the_background(tmp_path, background):
    parsed = parsed_scene_of(tmp_path, masks=False, alpha=True, background=(9, 200, 77))
    scene = preprocess(parsed, parsed.images, CONF, background)
    for image, mask in zip(scene.images, scene.masks, strict=True):
        assert set(np.unique(mask)) == {0, 255}
        assert (image[mask == 0] == 255 * background).all() and (image[mask == 255] != 255 * background).any()


def test_the_users_region_replaces_the_formats_and_leads_back_to_the_same_world(tmp_path):
    parsed = parsed_scene_of(tmp_path)
    scene = preprocess(parsed, parsed.images, replace(CONF, roi="1 -3 0.6 1.5"))
    np.testing.assert_allclose(scene.scene_to_world[:3, 3], [1, -3, 0.6])
    np.testing.assert_allclose(scene.bbox_max, [1.01] * 3)
    for view, posed in enumerate(parsed.images):
        centre = scene.scene_to_world @ scene.c2w[view][:, 3]
        np.testing.assert_allclose(centre[:3], posed.c2w[:3, 3], atol=1e-9)


def without_mask(parsed):
    return replace(parsed.images[1], mask_path=None)


def with_size(parsed):
    return replace(parsed.images[1], lens=replace(parsed.images[1].lens, size=(33, 60)))


def with_mask_of_another(parsed):
    return replace(parsed.images[1], mask_path=parsed.images[0].mask_path)


def with_the_lens_of_another(parsed):
    return replace(parsed.images[1], lens=parsed.images[0].lens)


def with_a_lens_of_no_focal_length(parsed):
    return replace(parsed.images[1], lens=lens_of((80, 60), focal=1e-9))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_mask, ["1.png: has no mask", "0.png has"]),
        (with_size, ["1.png: is 80x60 pixels and its camera 33x60"]),
        (with_mask_of_another, ["mask0.png: is 64x48", "1.png 80x60"]),
        (with_the_lens_of_another, ["1.png: is 80x60 pixels and 0.png 64x48", "same intrinsics"]),
        (with_a_lens_of_no_focal_length, ["lens of 1.png cannot be used", "focal length"]),
    ],
)
def test_what_does_not_belong_together_is_named(tmp_path, change, words):
    parsed = parsed_scene_of(tmp_path)
    posed_images = [parsed.images[0], change(parsed), parsed.images[2]]
    with pytest.raises((SceneError, ImageError)) as caught:
        preprocess(parsed, posed_images, CONF)
    assert [word for word in words if word not in str(caught.value)] == []


def numbers(posed_images):
    return [int(posed.path.stem) for posed in posed_images]


@pytest.mark.parametrize(
    ("keys", "train", "held_out"),
    [
        ({}, [0, 1, 2, 3, 4, 5], [6, 7]),
        ({"test_every": 3}, [1, 2, 4, 5], [0, 3]),
        ({"test_views": (4, 1)}, [0, 2, 3, 5], [4, 1]),
        ({"test_views": (4, 1), "test_every": 3}, [0, 2, 3, 5], [4, 1]),
        ({"train_views": (5, 2)}, [5, 2], [6, 7]),
        ({"train_views": (5, 2), "test_views": (0,)}, [5, 2], [0]),
    ],
)
def test_every_way_of_holding_out_views(keys, train, held_out):
    posed_images = [PosedImage(CONF_PATH / f"{n}.png", lens_of((8, 8)), np.eye(4), None, n >= 6) for n in range(8)]
    found = split(ParsedScene("x", CONF_PATH, tuple(posed_images)), replace(CONF, **keys))
    assert [numbers(part) for part in found] == [train, held_out]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"test_views": (6,)}, "dataset.test_views: there is no photograph 6; scene has 0 to 5"),
        ({"train_views": (-1,)}, "dataset.train_views: there is no photograph -1"),
        ({"train_views": (2, 2)}, "names photograph 2 twice"),
        ({"train_views": (3, 2), "test_every": 3}, "photograph 3 is in dataset.train_views and held out"),
        ({"test_every": 1}, "no photograph is left to train on"),
    ],
)
def test_lists_that_cannot_be_are_named(keys, words):
    posed_images = [PosedImage(CONF_PATH / f"{n}.png", lens_of((8, 8)), np.eye(4), None, n >= 6) for n in range(8)]
    with pytest.raises(SceneError, match=words):
        split(ParsedScene("x", CONF_PATH, tuple(posed_images)), replace(CONF, **keys))


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (120, 130, 90)])
def test_masks_derived_from_a_backdrop_are_those_of_the_object(tmp_path, colour):
    parsed = parsed_scene_of(tmp_path, masks=False, background=colour)
    given = preprocess(parsed_scene_of(tmp_path, background=colour), parsed.images, CONF)
    assert given.masks is None and given.backdrop is None
    scene = preprocess(parsed, parsed.images, replace(CONF, masks_from_backdrop=True))
    np.testing.assert_allclose(scene.backdrop * 255, colour, atol=1e-4)
    assert any("masks: derived" in note and " ".join(map(str, colour)) in note for note in scene.notes)
    for view, posed in enumerate(parsed.images):
        _, hit = draw_sphere(posed.lens.intrinsics, scene.c2w[view], *scene.masks[view].shape, 0.5)
        assert (hit != (scene.masks[view] > 0)).mean() < 0.003  # pixels of the object that have the backdrop's colour


def test_a_backdrop_gives_no_masks_where_there_are_some_or_where_it_is_not_of_one_colour(tmp_path):
    conf = replace(CONF, masks_from_backdrop=True)
    parsed = parsed_scene_of(tmp_path)
    assert preprocess(parsed, parsed.images, conf).backdrop is None
    for posed in parsed.images:
        picture = cv2.imread(str(posed.path))
        picture[: len(picture) // 2] += np.uint8(40)
        cv2.imwrite(str(posed.path), picture)
    scene = preprocess(parsed, [replace(posed, mask_path=None) for posed in parsed.images], conf)
    assert scene.masks is None and scene.backdrop is None


def test_openings_are_backdrop_and_specks_of_its_colour_are_not():
    image = np.full((100, 200, 3), 250, np.uint8)
    image[20:80, 40:160] = 90
    image[40:50, 60:70] = 250  # an opening: 0.5 % of the image
    image[60:63, 100:103] = 250  # a highlight: 0.05 %
    image[5, 5] = 0  # noise
    expected = np.zeros((100, 200), np.uint8)
    expected[20:80, 40:160] = 255
    expected[40:50, 60:70] = 0
    (colour,) = backdrop_colours([image])
    np.testing.assert_array_equal(backdrop_mask(image, colour), expected)


def test_held_out_views_have_masks_from_the_backdrop_of_the_training_views(tmp_path):
    write_scene(tmp_path, n_views=5, masks=False)
    conf = replace(dataset_config(tmp_path), test_every=2, masks_from_backdrop=True)
    training = load_scene(conf)
    held_out = load_held_out(conf, training)
    np.testing.assert_array_equal(held_out.backdrop, training.backdrop)
    assert len(held_out.masks) == 3 and all((mask > 0).any() and (mask == 0).any() for mask in held_out.masks)
    assert load_held_out(conf, load_scene(replace(conf, masks_from_backdrop=False))).masks is None


def test_held_out_views_share_the_frame_of_the_training_views(tmp_path):
    written = write_scene(tmp_path, n_views=5)
    conf = replace(dataset_config(tmp_path), test_every=2)
    training = load_scene(conf)
    held_out = load_held_out(conf, training)
    assert training.image_names == ("001.png", "003.png")
    assert held_out.image_names == ("000.png", "002.png", "004.png")
    np.testing.assert_array_equal(held_out.scene_to_world, SCALE_MAT)
    np.testing.assert_allclose(held_out.c2w, written.c2w[::2], atol=1e-9)
    assert load_held_out(dataset_config(tmp_path), training) is None
