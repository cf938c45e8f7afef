"""Backdrops from which masks are derived, and those from which none are."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from synthetic_scene import dataset_config, write_scene

from data.prepare.load import load_held_out, load_scene
from data.scenes.backdrop import backdrop_colours, backdrop_mask, derived_masks, shows_object


def before(backdrop, value=90):
    """A disc of a radius of 50 pixels in an image of 200 x 200 pixels, grey, before a backdrop [200, 200]."""
    y, x = np.mgrid[:200, :200] - 100
    image = np.where(np.hypot(x, y) < 50, value, backdrop)
    return np.repeat(image.round().astype(np.uint8)[..., None], 3, axis=2)


def spot(amount):
    """A grey backdrop with a spot of light in its middle."""
    y, x = np.mgrid[:200, :200] - 99.5
    return 128 + amount * np.clip(1 - np.hypot(x, y) / 99, 0, 1)


def of_jpeg(image, quality):
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


NOISE = np.random.default_rng(0).normal(0, 1, (200, 200))
PLAIN = np.full((200, 200), 200)
BACKDROPS = {
    "plain": (before(PLAIN), True),
    "noise": (before(PLAIN + NOISE), True),
    "JPEG": (of_jpeg(before(PLAIN), 60), True),
    "a weak spot": (before(spot(20), 128), False),
    "an object of its colour": (before(PLAIN, 200), False),
    "black photographs": (np.zeros((200, 200, 3), np.uint8), False),
}


def masks_of(images):
    """What is derived from photographs: masks, and colours of their backdrops."""
    colours = backdrop_colours(images)
    return [backdrop_mask(image, colour) for image, colour in zip(images, colours, strict=True)], colours


@pytest.mark.parametrize(("image", "is_object"), BACKDROPS.values(), ids=BACKDROPS)
def test_only_the_outline_of_an_object_gives_masks(image, is_object):
    (mask,), colours = masks_of([image])
    assert shows_object([image], [mask], colours) == is_object
    if is_object:
        distance = np.hypot(*(np.mgrid[:200, :200] - 100))
        assert (mask[distance < 50] > 0).all() and (mask[distance > 66] == 0).all()


def test_a_view_without_the_object_is_allowed_but_not_many():
    images = [before(PLAIN)] * 20 + [before(PLAIN, 200)] * 2
    masks, colours = masks_of(images)
    assert shows_object(images, masks, colours)
    assert not shows_object(images[-3:], masks[-3:], colours[-3:])


def repainted(folder, picture_of):
    """A scene without masks whose photographs are others; its conf, with masks from the backdrop."""
    write_scene(folder, masks=False)
    for index, path in enumerate(sorted((folder / "image").iterdir())):
        height, width = cv2.imread(str(path)).shape[:2]
        cv2.imwrite(str(path), cv2.resize(picture_of(index), (width, height)))
    return replace(dataset_config(folder), masks_from_backdrop=True)


def exposed(image, factor):
    return (image * factor).clip(0, 255).round().astype(np.uint8)


@pytest.mark.parametrize("factors", [(1.0, 0.7, 1.4), (0.5, 2.0, 1.0)])
def test_each_photograph_has_its_own_colour_where_the_exposure_varies(factors):
    images = [exposed(before(PLAIN - 60 + 0.4 * NOISE), factor) for factor in factors]
    masks, colours = masks_of(images)
    expected = (140 / 255 * np.array(factors)).clip(0, 1)[:, None]
    np.testing.assert_allclose(colours, np.repeat(expected, 3, axis=1), atol=2 / 255)
    assert shows_object(images, masks, colours)
    assert np.ptp([np.count_nonzero(mask) for mask in masks]) < 100


def test_photographs_with_an_overexposed_backdrop_are_left_out():
    image = before(PLAIN - 60)
    found = derived_masks([exposed(image, factor) for factor in (1.0, 2.0, 0.7, 1.3)])
    assert found.views == (0, 2, 3) and "photographs left out for their overexposed backdrop: 1;" in found.note
    np.testing.assert_allclose(found.colour, 140 / 255, atol=2 / 255)
    white = derived_masks([before(np.full((200, 200), 255))] * 2)
    assert white.views == (0, 1) and "left out" not in white.note
    assert derived_masks([exposed(image, factor) for factor in (1.0, 2.0, 2.5)]) is None
    halves = np.where(np.arange(200) < 100, 60, 200) * np.ones((200, 1))
    assert backdrop_colours([before(halves), before(PLAIN)]) is None  # several colours


def test_held_out_photographs_have_masks_by_their_own_exposure(tmp_path):
    conf = repainted(tmp_path, lambda index: exposed(before(PLAIN - 60), 0.6 + 0.2 * (index % 5)))
    conf = replace(conf, test_every=2)
    scene = load_scene(conf)
    held_out = load_held_out(conf, scene)
    assert held_out.backdrop is scene.backdrop
    shares = [mask.mean() / 255 for mask in (*scene.masks, *held_out.masks)]
    assert min(shares) > 0.15 and max(shares) < 0.3
