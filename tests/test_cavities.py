"""Closed cavities that no camera sees contain no surface: of the field without masks, of a mesh always."""

import numpy as np
import pytest
import trimesh
from test_fast_background import trained

from data.scenes.frustum import squared_radii
from models.estimators.occupancy import OccupancyGrid
from models.mesh import pieces


@pytest.fixture(scope="module")
def model():
    """On the bundled scene as if it had no masks."""
    return trained(steps=1).model


def sphere_with_a_cavity(channel):
    """A distance: a ball of radius 0.7, hollow within 0.25, with a channel of that radius along x."""

    def distance(points):
        radius = np.linalg.norm(points, axis=1)
        hollow = np.maximum(0.25 - radius, -1)
        if channel:
            hollow = np.maximum(hollow, np.where(points[:, 0] > 0, channel - np.hypot(*points[:, 1:].T), -1))
        return np.maximum(radius - 0.7, hollow)[:, None].astype(np.float32)

    return distance


@pytest.mark.parametrize(
    ("channel", "camera", "is_filled"),
    [(0.0, (0.0, 0.0, 2.0), True), (0.1, (0.0, 0.0, 2.0), False), (0.0, (0.1, 0.0, 0.0), False)],
    ids=["closed", "open", "with a camera"],
)
def test_a_cavity_that_nothing_leads_to_is_no_surface(model, monkeypatch, channel, camera, is_filled):
    field = sphere_with_a_cavity(channel)
    monkeypatch.setattr(model.estimator, "distances", field)
    monkeypatch.setattr(model.estimator.grid, "cameras", np.array([camera]))
    monkeypatch.setattr(model.estimator.grid, "cells", model.estimator.grid.hull.astype(np.uint8))
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (4000, 3)).astype(np.float32)
    points = points[np.linalg.norm(points, axis=1) < 0.6]
    found, given = model.level_set.outward(points)[:, 0], field(points)[:, 0]
    assert (given > 0.01).any()
    np.testing.assert_array_equal(found, -np.abs(given) if is_filled else given)
    rim = points / np.linalg.norm(points, axis=1, keepdims=True) * 0.72
    np.testing.assert_array_equal(model.level_set.outward(rim)[:, 0] > 0, field(rim)[:, 0] > 0)


def a_sheet(points):
    """A distance: a sheet of a fifth of a cell's width, across the region."""
    return (np.abs(points @ np.float32([0.6, 0.48, 0.64]) - 0.1) - 0.1 * 2 / 32)[:, None].astype(np.float32)


@pytest.mark.parametrize("steepness", [0.5, 1.5])
@pytest.mark.parametrize("field", [sphere_with_a_cavity(0.1), a_sheet], ids=["cavity", "sheet"])
def test_pruning_evaluates_few_cells_and_finds_those_near_the_surface(model, monkeypatch, field, steepness):
    estimator, asked = model.estimator, []

    def steep(points):
        asked.append(len(points))
        return np.float32(steepness) * field(points)

    monkeypatch.setattr(estimator, "distances", steep)
    monkeypatch.setattr(estimator, "grid", OccupancyGrid(squared_radii(64) < 1))
    centres = estimator.grid.centres()
    expected = steepness * field(centres)[:, 0]
    for reach in (0.03, 0.1, 10.0):
        asked.clear()
        found = estimator.hull_distances(reach)
        is_near = np.abs(expected) <= reach
        np.testing.assert_allclose(found[is_near], expected[is_near], atol=1e-6)
        np.testing.assert_array_equal(found < 0, expected < 0)
        assert (np.abs(found[~is_near]) > reach - 1e-6).all()
        assert reach > 0.03 or sum(asked) < 0.7 * len(centres)


def hollow(*cavities, body=1.0):
    """A ball with spherical cavities of (radius, centre)."""
    parts = [trimesh.creation.icosphere(2, radius).apply_translation(centre) for radius, centre in cavities]
    for part in parts:
        part.invert()
    return trimesh.util.concatenate([trimesh.creation.icosphere(3, body), *parts])


OUTSIDE = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, -3.0]])
CAVITIES = ((0.3, (0.5, 0.0, 0.0)), (0.1, (-0.5, 0.0, 0.0)))


def test_closed_cavities_without_a_camera_are_removed():
    mesh, far = hollow(*CAVITIES), (1e3, -2e3, 50)
    mesh.apply_translation(far)
    found = pieces.without_cavities(mesh, OUTSIDE + far)
    assert (found.removed, found.kept) == (2, 1)
    assert found.mesh.volume == pytest.approx(hollow().volume)
    seen = pieces.without_cavities(mesh, np.array([[0.5, 0.1, 0.1]]) + far)
    assert (seen.removed, seen.kept) == (1, 2)


def test_bodies_open_parts_and_a_room_around_its_cameras_are_no_cavities():
    room = hollow((0.9, (0, 0, 0)), body=1.0)
    assert pieces.without_cavities(room, np.zeros((1, 3))).mesh is room
    cut = hollow(CAVITIES[0])
    cut.update_faces(np.arange(len(cut.faces)) < len(cut.faces) - 1)
    inside_out = hollow()
    inside_out.invert()
    for kept in (hollow(), hollow(body=0.1), cut, inside_out):
        assert pieces.without_cavities(kept, OUTSIDE).mesh is kept
