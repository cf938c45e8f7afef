"""A mesh of which only the seen parts are kept: what no camera sees is left out before the surface is extracted."""

import numpy as np
import pytest
from test_fast_background import trained

from data.rays import PinholeCamera
from data.scenes.scene import Views
from models.estimators.packed_surface import SurfaceOccupancyEstimator
from models.mesh.clean import as_seen
from models.mesh.sparse import extract
from models.mesh.visibility import Visibility
from models.requests import MeshRequest
from models.results.meshes import seen_space, within, without_boundary

# The lower side of a wall whose upper side is at 0; the depth of the middle of the balls behind it, and their distance.
WALL, BEHIND, SPACING = 0.2, 0.55, 0.18
LOW, HIGH = np.full(3, -1.01), np.full(3, 1.01)


def from_above(height, x=0.0):
    """A camera at (x, 0, height) that looks down and sees the whole region."""
    pose = np.diag([1.0, -1.0, -1.0, 1.0])
    pose[:3, 3] = x, 0.0, height
    return PinholeCamera(np.array([[60.0, 0, 50], [0, 60, 50], [0, 0, 1]]), pose, 101, 101)


def views_of(*cameras):
    """The views of cameras, without photographs."""
    poses, count = np.stack([camera.c2w for camera in cameras]), len(cameras)
    sizes = tuple((camera.width, camera.height) for camera in cameras)
    lenses = np.stack([camera.intrinsics for camera in cameras])
    box = {"scene_to_world": np.eye(4), "bbox_min": LOW, "bbox_max": HIGH}
    return Views(name="above", image_names=("",) * count, sizes=sizes, intrinsics=lenses, c2w=poses, **box)


def wall_and_balls(points):
    """A distance: a wall, a ball on it, and a lattice of balls behind it."""
    z = points[:, 2].astype(float)
    found = np.minimum(np.maximum(z, -WALL - z), np.linalg.norm(points - np.array([0.0, 0.0, 0.1]), axis=1) - 0.15)
    places = points + np.array([0.0, 0.0, BEHIND])
    off = np.linalg.norm(places - SPACING * np.round(places / SPACING), axis=1)
    balls = np.where(np.abs(places[:, 2]) < 1.5 * SPACING, off - 0.3 * SPACING, 0.2 * SPACING)
    return np.minimum(found, balls)[:, None].astype(np.float32)


@pytest.fixture(scope="module")
def of_the_demo():
    return trained(steps=1).model


@pytest.fixture
def model(of_the_demo, monkeypatch):
    """On the bundled scene as if it had no masks, with that distance and a camera above the wall."""
    estimator = of_the_demo.estimator
    monkeypatch.setattr(estimator, "distances", wall_and_balls)
    monkeypatch.setattr(estimator.grid, "cells", estimator.grid.hull.astype(np.uint8))
    monkeypatch.setattr(estimator.background, "views", views_of(from_above(2.5)))
    return of_the_demo


def test_what_a_wall_hides_is_outside_and_what_is_seen_is_unchanged(model):
    points = np.random.default_rng(0).uniform(-0.7, 0.7, (20000, 3)).astype(np.float32)
    points = points[np.linalg.norm(points, axis=1) < 0.95]
    field = model.level_set
    all_of_it, seen = field.outward(points)[:, 0], within(field, field.seen_space(0.01)).outward(points)[:, 0]
    assert (seen >= all_of_it).all()
    is_behind = points[:, 2] < -WALL
    assert (all_of_it[is_behind] < 0).any() and (seen[is_behind] > 0).all()
    is_before = points[:, 2] > -0.03  # also the surface itself
    np.testing.assert_array_equal(seen[is_before] < 0, all_of_it[is_before] < 0)
    near = is_before & (np.abs(all_of_it) < 0.01)
    np.testing.assert_array_equal(seen[near], all_of_it[near])


def extracted(level_set, low=LOW, high=HIGH, resolution=140):
    return extract(level_set, low, high, resolution, 0.0, 1 << 20).mesh


@pytest.mark.parametrize("cameras", [(2.5, -2.5), (0.3,)], ids=["both sides", "within"])
def test_the_seen_triangles_are_those_of_the_whole_surface(model, monkeypatch, cameras):
    placed = [from_above(height, 0.3 if height < 1 else 0.0) for height in cameras]
    for camera in placed[1:]:  # from below
        camera.c2w[:3, :3] = np.eye(3)
    monkeypatch.setattr(model.estimator.background, "views", views_of(*placed))
    field = model.level_set
    space = field.seen_space(2.02 / 139)
    assert (space is None) == (len(cameras) == 2)  # from both sides most of it is seen
    every = extracted(field)
    fewer = every if space is None else without_boundary(extracted(within(field, space)), space)
    whole, cut = (as_seen(mesh, placed, Visibility(mesh)) for mesh in (every, fewer))
    assert len(whole.faces) == len(cut.faces) > 1000
    np.testing.assert_allclose(*(np.sort(mesh.triangles_center, axis=0) for mesh in (whole, cut)), atol=1e-9)
    assert space is None or len(fewer.faces) < 0.6 * len(every.faces)


def test_all_of_the_surface_is_extracted_where_it_may_be_kept(model, monkeypatch):
    space = seen_space(model.level_set, MeshRequest(256, clean="views"), 2.0)
    high = np.array([0.6, 0.6, -0.02])  # where nothing is seen the boundary stays, for the report
    mesh = extracted(within(model.level_set, space), np.full(3, -0.6), high, 40)
    assert space.bounds(np.asarray(mesh.vertices)).all() and without_boundary(mesh, space) is mesh
    for change in ({"clean": "dust"}, {"bbox": (-1, -1, -1, 1, 1, 1)}, {"threshold": 0.01}, {"resolution": 24}):
        request = MeshRequest(**{"resolution": 256, "clean": "views"} | change)
        assert seen_space(model.level_set, request, 2.0) is None
    ball = lambda points: np.linalg.norm(points, axis=1, keepdims=True) - 0.5  # noqa: E731
    monkeypatch.setattr(model.estimator, "distances", ball)
    assert model.level_set.seen_space(0.01) is None  # without hidden parts
    assert SurfaceOccupancyEstimator.seen_space(None, 0.01) is None  # with masks
