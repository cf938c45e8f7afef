"""An object rotated in front of a static wall is detected and the fix is reported; a walk around it is not."""

import cv2
import numpy as np
import pytest
import rendered_photographs
from preparations import request

from data.errors import UserError
from data.io.images import write_image
from data.prepare.pipeline import prepare
from data.prepare.reconstruct import DATABASE
from data.prepare.static_camera import MOSTLY, share_of_still_pairs

pytestmark = pytest.mark.slow  # it prepares photographs


def test_an_object_that_turns_before_a_wall_is_told(tmp_path):
    (tmp_path / "photos").mkdir()
    wall = (255 * cv2.resize(rendered_photographs.textures(5)[0], (320, 240))).astype(np.uint8)
    surfaces = rendered_photographs.textures(1)
    for index, pose in enumerate(rendered_photographs.poses(6)):
        picture = wall.copy()
        picture[90:162, 110:206] = cv2.resize(rendered_photographs.render(pose, surfaces), (96, 72))
        write_image(tmp_path / "photos" / f"{index}.png", picture)
    with pytest.raises(UserError, match="the camera stood still.*; walk around the object") as caught:
        prepare(request(tmp_path), str)
    assert "\n" not in str(caught.value) and not (tmp_path / "scene").exists()


def test_a_walk_around_something_is_none(prepared_scene):
    database = prepared_scene / "scene" / "prepare" / DATABASE
    sides = {f"{index:04d}.png": 320 for index in range(3)}
    assert share_of_still_pairs(database, sides) < MOSTLY
    assert share_of_still_pairs(database.with_name("none.db"), sides) == 0.0
