"""tests/photo_consistency.py measures the true errors on exactly known matches."""

import dataclasses

import numpy as np
import pytest
from photo_consistency import CHANGES, Camera, Match, all_distances, best_shift, shifted
from scene_writers import make_views, project, sphere_points, write_ngp

from data.readers.ngp import read_ngp


@pytest.fixture(scope="module", params=[False, True], ids=["opencv", "fisheye"])
def matches(request, tmp_path_factory):
    """All pairs of views of one scene, with the pixels that the writer's own projection gives."""
    folder = tmp_path_factory.mktemp("scene")
    views = make_views(fisheye=request.param)
    write_ngp(folder, views)
    posed_images = [Camera(posed.lens, posed.c2w) for posed in read_ngp(folder, None).images]
    pixels = [project(view, 0.5 * sphere_points(40)) - 0.5 for view in views]
    return [Match(posed_images[i], posed_images[i - 1], pixels[i], pixels[i - 1]) for i in range(len(posed_images))]


def test_exact_cameras_leave_nothing(matches):
    assert np.abs(all_distances(matches, CHANGES["as read"])).max() < 1e-5


def test_a_distance_is_in_pixels(matches):
    """Moving one picture's points by a pixel across its epipolar lines is half a pixel in the mean of both, about."""
    rng = np.random.default_rng(2)
    moved = [dataclasses.replace(m, pixels_1=m.pixels_1 + rng.normal(size=m.pixels_1.shape)) for m in matches]
    assert 0.3 < np.std(all_distances(moved, CHANGES["as read"])) < 3


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "as read"])
def test_every_wrong_convention_shows(matches, name):
    least = 0.05 if "0.5" in name else 0.003 if name == "without distortion" else 0.5
    assert np.median(np.abs(all_distances(matches, CHANGES[name]))) > least


def test_the_shift_of_the_principal_points_is_found(matches):
    change = shifted(0.5, -0.25)
    wrong = [dataclasses.replace(m, first=change(m.first), second=change(m.second)) for m in matches]
    np.testing.assert_allclose(best_shift(wrong), [-0.5, 0.25], atol=1e-3)
