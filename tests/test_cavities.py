"""Closed cavities that no camera sees contain no surface in scenes without masks."""

import numpy as np
import pytest
from test_fast_background import trained


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
    monkeypatch.setattr(model.estimator, "trained", field)
    monkeypatch.setattr(model.estimator, "_cavities", None)
    monkeypatch.setattr(model.estimator.grid, "cameras", np.array([camera]))
    monkeypatch.setattr(model.estimator.grid, "cells", model.estimator.grid.hull.astype(np.uint8))
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (4000, 3)).astype(np.float32)
    points = points[np.linalg.norm(points, axis=1) < 0.6]
    found, given = model.level_set.outward(points)[:, 0], field(points)[:, 0]
    assert (given > 0.01).any()
    if is_filled:
        assert (found < 0).all()
        np.testing.assert_array_equal(np.abs(found), np.abs(given))
    else:
        np.testing.assert_array_equal(found, given)
    rim = points / np.linalg.norm(points, axis=1, keepdims=True) * 0.72
    np.testing.assert_array_equal(model.level_set.outward(rim)[:, 0] > 0, field(rim)[:, 0] > 0)
