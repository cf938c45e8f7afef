"""Pictures of meshes, against what geometry says must be seen."""

import numpy as np
import pytest
import trimesh

from models.results import render

INTRINSICS = np.array([[90.0, 0.0, 40.0], [0.0, 80.0, 30.0], [0.0, 0.0, 1.0]])
HEIGHT, WIDTH = 64, 80
BACK = np.eye(4)
BACK[2, 3] = -4.0  # four units before the origin, looking along +z


def visible(image):
    """The pixels that show any of the object: clay is darker than the background."""
    return (image < render.MESH_BACKGROUND - 0.05).any(axis=-1)


def test_pixel_0_0_is_the_centre_of_the_first_pixel_x_right_y_down():
    place = np.array([0.6, -0.35, 0.2])
    ball = trimesh.creation.icosphere(3, 0.15).apply_translation(place)
    image = render.shade_mesh(ball, INTRINSICS, BACK, HEIGHT, WIDTH)
    rows, columns = np.nonzero(visible(image))
    expected = INTRINSICS @ (place - BACK[:3, 3])
    assert [columns.mean(), rows.mean()] == pytest.approx(expected[:2] / expected[2], abs=0.25)


def test_a_sphere_has_its_outline_and_its_light():
    image = render.shade_mesh(trimesh.creation.icosphere(5, 1.0), INTRINSICS, BACK, HEIGHT, WIDTH)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    tangent = np.hypot((columns - 40.0) / 90.0, (rows - 30.0) / 80.0) * np.sqrt(4.0**2 - 1.0)
    seen = visible(image)
    assert seen[tangent < 0.97].all() and not seen[tangent > 1.03].any()
    for row, column in ((30, 40), (22, 33), (38, 49), (40, 30)):  # brightness follows the normals and the lamp
        direction = np.array([(column - 40.0) / 90.0, (row - 30.0) / 80.0, 1.0])
        direction /= np.linalg.norm(direction)
        along = 4.0 * direction[2]
        normal = BACK[:3, 3] + (along - np.sqrt(along**2 - 15.0)) * direction
        light = render.AMBIENT + (1.0 - render.AMBIENT) * max(normal @ render.LAMP, 0.0)
        assert image[row, column] == pytest.approx(render.CLAY * light, abs=0.01)
