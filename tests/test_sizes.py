"""Sizes of images and films."""

from types import SimpleNamespace

import pytest

from data.cameras import image_pixels
from models.results.camera_paths import film_level
from models.results.image_metrics import picture_level


@pytest.mark.parametrize(("size", "shown"), [((200, 100), (200, 100)), ((800, 1600), (400, 800))])
def test_a_picture_is_as_large_as_the_photograph_up_to_800_pixels(size, shown):
    views = SimpleNamespace(size=lambda view: size)
    assert image_pixels(*size, picture_level(views, 0, 0)).shape[1::-1] == shown and picture_level(views, 0, 4) == 4


@pytest.mark.parametrize(("height", "lines"), [(200, 200), (1200, 1200), (1440, 720), (4000, 800)])
def test_a_film_has_720_lines_or_those_of_the_photographs(height, lines):
    assert height // film_level(height) == lines
