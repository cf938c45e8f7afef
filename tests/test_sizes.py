"""Sizes of images and films."""

import numpy as np
import pytest

from data.cameras import image_pixels
from models.results.sizes import film_level, picture_level


class Views:
    """The sizes of a scene's views."""

    def __init__(self, *size):
        self.size = lambda view: size


@pytest.mark.parametrize(
    ("size", "shown"), [((200, 100), (200, 100)), ((1000, 500), (800, 400)), ((800, 1600), (400, 800))]
)
def test_a_picture_is_as_large_as_the_photograph_up_to_800_pixels(size, shown):
    pixels = image_pixels(*size, picture_level(Views(*size), 0, 0))
    assert (pixels.shape[1], pixels.shape[0]) == shown
    assert np.array_equal(pixels[-1, -1], [size[0] - 1, size[1] - 1])
    assert picture_level(Views(*size), 0, 4) == 4


@pytest.mark.parametrize(("height", "lines"), [(200, 200), (720, 720), (1200, 1200), (1440, 720), (4000, 800)])
def test_a_film_has_720_lines_or_those_of_the_photographs(height, lines):
    assert height // film_level(height) == lines
