"""Backdrops from which masks are derived, and those from which none are."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from synthetic_scene import dataset_config, write_scene

from data.scenes.backdrop import backdrop_colour, backdrop_mask, shows_object
from data.scenes.load import load_scene


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
    "16 bits": (before(PLAIN).astype(np.uint16) * 257, True),
    "noise": (before(PLAIN + NOISE), True),
    "a gradient within the noise": (before(PLAIN + np.linspace(-3, 3, 200)[:, None]), True),
    "JPEG": (of_jpeg(before(PLAIN), 60), True),
    "strong JPEG": (of_jpeg(before(PLAIN), 20), True),
    "a weak spot": (before(spot(20), 128), False),
    "a spot": (before(spot(100), 128), False),
    "an object of its colour": (before(PLAIN, 200), False),
    "black photographs": (np.zeros((200, 200, 3), np.uint8), False),
}


@pytest.mark.parametrize(("image", "is_object"), BACKDROPS.values(), ids=BACKDROPS)
def test_only_the_outline_of_an_object_gives_masks(image, is_object):
    colour = backdrop_colour([image])
    mask = backdrop_mask(image, colour)
    assert shows_object([image], [mask], colour) == is_object
    if is_object:
        y, x = np.mgrid[:200, :200] - 100
        is_disc = np.hypot(x, y) < 50
        assert (mask[is_disc] > 0).all() and (mask[np.hypot(x, y) > 66] == 0).all()


def test_a_view_without_the_object_is_allowed_but_not_many():
    images = [before(PLAIN)] * 20 + [before(PLAIN, 200)] * 2
    colour = backdrop_colour(images)
    masks = [backdrop_mask(image, colour) for image in images]
    assert shows_object(images, masks, colour)
    assert not shows_object(images[-3:], masks[-3:], colour)


def test_photographs_before_a_spot_of_light_have_no_masks(tmp_path):
    write_scene(tmp_path, masks=False)
    for path in (tmp_path / "image").iterdir():
        height, width = cv2.imread(str(path)).shape[:2]
        light = cv2.resize(spot(20), (width, height))
        cv2.imwrite(str(path), np.repeat(light.astype(np.uint8)[..., None], 3, axis=2))
    scene = load_scene(replace(dataset_config(tmp_path), masks_from_backdrop=True))
    assert scene.masks is None and scene.backdrop is None and not any("masks" in note for note in scene.notes)
