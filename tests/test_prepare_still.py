"""An object rotated in front of a static wall is detected and the fix is reported; a walk around it is not."""

import cv2
import numpy as np
import pytest
import rendered_photographs
from preparations import read, request

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


def turning_before_a_wall(folder, count, background):
    """Photographs of a small corner that turns before a static wall, and its masks on this grey value."""
    wall = (255 * cv2.resize(rendered_photographs.textures(5)[0], (640, 480))).astype(np.uint8)
    for name in ("photos", "masks"):
        (folder / name).mkdir()
    for index, pose in enumerate(rendered_photographs.poses(count)):
        rendered = rendered_photographs.render(pose, rendered_photographs.textures(1))
        is_object = cv2.erode((rendered != 128).any(axis=2).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        picture, mask = wall.copy(), np.full((480, 640), background, np.uint8)
        picture[120:360, 160:480] = np.where(is_object[..., None], rendered, picture[120:360, 160:480])
        mask[120:360, 160:480][is_object] = 255
        write_image(folder / "photos" / f"{index}.png", picture)
        write_image(folder / "masks" / f"{index}.png", mask)


@pytest.mark.parametrize("background", [0, 3])
def test_with_masks_the_cameras_are_those_of_the_object_that_turns(tmp_path, background):
    turning_before_a_wall(tmp_path, 6, background)
    said = []
    assert prepare(request(tmp_path, masks=str(tmp_path / "masks")), said.append)
    assert any("estimated again, from what is inside the masks" in line for line in said), said
    assert any("the cameras are those of the object" in line for line in said), said
    found, true = read(tmp_path / "scene").c2w, rendered_photographs.poses(6)
    turns = [np.linalg.inv(poses[0, :3, :3]) @ poses[-1, :3, :3] for poses in (found, true)]
    angles = [np.degrees(np.arccos((np.trace(turn) - 1) / 2)) for turn in turns]
    assert angles[0] == pytest.approx(angles[1], rel=0.05)
    assert not (tmp_path / "scene/prepare/object").exists()


def test_a_walk_around_something_is_none(prepared_scene):
    database = prepared_scene / "scene" / "prepare" / DATABASE
    sides = {f"{index:04d}.png": 320 for index in range(3)}
    assert share_of_still_pairs(database, sides) < MOSTLY
    assert share_of_still_pairs(database.with_name("none.db"), sides) == 0.0
