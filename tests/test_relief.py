"""Relief of a mesh beside that of its ground truth, and photographs compared across a mesh."""

import numpy as np
import pytest
import trimesh
from test_details import around, photographs, plane

from models.mesh.grey_photographs import GreyPhotographs
from models.mesh.visibility import Visibility
from models.results.photo_consistency import _scores
from models.results.relief import relief_metrics

BALL = trimesh.creation.icosphere(6, 1.0)


def ball(*waves):
    """A sphere of radius 0.6 with waves along z: wavelength on the unit sphere and height, of each."""
    z = np.arcsin(BALL.vertices[:, 2:])
    height = sum(height * np.sin(2 * np.pi * z / wavelength) for wavelength, height in waves)
    return trimesh.Trimesh(BALL.vertices * (0.6 + height), BALL.faces, process=False)


def test_relief_is_compared_by_correlation_and_height():
    coarse, fine = (0.15, 0.002), (0.04, 0.001)
    truth, cameras = ball(coarse, fine), around()
    same = relief_metrics(truth, truth, cameras)
    assert same.relief_correlation == pytest.approx(1) and same.relief_gain == pytest.approx(1)
    half = relief_metrics(ball((0.15, 0.001), (0.04, 0.0005)), truth, cameras)
    assert half.relief_correlation > 0.95 and half.relief_gain == pytest.approx(0.5, abs=0.05)
    assert half.relief_explained == pytest.approx(0.75, abs=0.05) and half.relief_rms == same.relief_rms
    without = relief_metrics(ball(coarse), truth, cameras)
    assert without.relief_correlation > 0.7 and abs(without.relief_gain_fine) < 0.3
    assert half.relief_correlation_fine > 0.9 and half.relief_gain_fine == pytest.approx(0.5, abs=0.1)
    assert relief_metrics(truth, ball(), cameras) is None


def test_photographs_correlate_less_across_a_wrong_surface():
    seen = photographs(0.0)
    pair = GreyPhotographs(seen.cameras[:2], seen.images[:2])
    scores = []
    for height in (0.0, 0.02):
        mesh = plane()
        mesh.vertices[:, 2] += height
        points = np.random.default_rng(0).uniform(-0.15, 0.15, (200, 3)) * [1, 1, 0] + [0, 0, height]
        scores.append(_scores(points, np.tile([0, 0, 1.0], (200, 1)), Visibility(mesh), pair))
    assert len(scores[0]) > 150 and scores[0].mean() > 0.9 and scores[1].mean() < 0.6
