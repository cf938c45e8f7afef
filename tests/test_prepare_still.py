"""An object rotated in front of a static wall: the fix is reported, masks solve it; a walk around it is not taken for
one."""

import cv2
import numpy as np
import pytest
from preparations import lines_of, read, refuse
from rendered_photographs import poses, render, textures

from data.io.images import write_image
from data.prepare.reconstruct import DATABASE
from data.prepare.static_camera import MOSTLY, share_of_still_pairs

pytestmark = pytest.mark.slow  # it prepares photographs


def turning_before_a_wall(folder, background):
    """Six photographs of a small corner that turns before a static wall, and its masks on this grey value."""
    wall = (255 * cv2.resize(textures(5)[0], (640, 480))).astype(np.uint8)
    for name in ("photos", "masks"):
        (folder / name).mkdir()
    for index, pose in enumerate(poses(6)):
        rendered = render(pose, textures(1))
        is_object = cv2.erode((rendered != 128).any(axis=2).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        picture, mask = wall.copy(), np.full((480, 640), background, np.uint8)
        picture[120:360, 160:480] = np.where(is_object[..., None], rendered, picture[120:360, 160:480])
        mask[120:360, 160:480][is_object] = 255
        write_image(folder / "photos" / f"{index}.png", picture)
        write_image(folder / "masks" / f"{index}.png", mask)


def test_an_object_that_turns_before_a_wall_is_told_and_masks_solve_it(tmp_path):
    turning_before_a_wall(tmp_path, background=3)
    refuse("the camera stood still.*; walk around the object", tmp_path)
    assert not (tmp_path / "scene").exists()
    said = lines_of(tmp_path, masks=str(tmp_path / "masks"))
    for words in ("estimated again, from what is inside the masks", "the cameras are those of the object"):
        assert any(words in line for line in said), said
    turns = [np.linalg.inv(found[0, :3, :3]) @ found[-1, :3, :3] for found in (read(tmp_path / "scene").c2w, poses(6))]
    angles = [np.degrees(np.arccos((np.trace(turn) - 1) / 2)) for turn in turns]
    assert angles[0] == pytest.approx(angles[1], rel=0.05)
    assert not (tmp_path / "scene/prepare/object").exists()


def test_a_walk_around_something_is_none(prepared_scene):
    database = prepared_scene / "scene" / "prepare" / DATABASE
    sides = {f"{index:04d}.png": 320 for index in range(3)}
    assert share_of_still_pairs(database, sides) < MOSTLY
    assert share_of_still_pairs(database.with_name("none.db"), sides) == 0.0
