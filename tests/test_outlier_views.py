"""Photographs that are inconsistent with the model are reported."""

from types import SimpleNamespace

import numpy as np
import pytest
from rigs import sphere_of_cameras, textured_scene

from models.plan import Decision, TrainingPlan
from models.results.image_metrics import outlier_notes, outliers
from models.results.render import RenderedView

pytestmark = pytest.mark.slow


def notes_of(scene, wrong=()):
    """Of a model that shows what the photographs show, but for some views."""
    pictures = iter(range(scene.n_views))

    def render(rays, shape):
        view = next(pictures)
        rgb = scene.rgb_image(view, scene.rgb_image(view).shape[0] // shape[0])
        rgb = 1 - rgb if view in wrong else rgb + np.random.default_rng(view).normal(0, 0.03, rgb.shape)
        return RenderedView(rgb, rgb, rgb[..., 0], rgb[..., 0])

    log = SimpleNamespace(progress=lambda values, **options: values)
    experiment = SimpleNamespace(scene=scene, plan=TrainingPlan(masks=Decision("given")))
    model = SimpleNamespace(networks={}, behind=None)
    given = SimpleNamespace(experiment=experiment, model=model, render=render, log=log)
    return outlier_notes(given)


def test_those_that_do_not_fit_are_named_and_none_where_all_do():
    scene = textured_scene(sphere_of_cameras(9, middle=np.zeros(3)))
    assert notes_of(scene) == ()
    (note,) = notes_of(scene, wrong=(2, 7))
    assert "(002.png)" in note and "(007.png)" in note and "(003.png)" not in note and "dataset.train_views" in note
    assert len(outliers(np.array([30.0, 5.0, 30.0]))) == 0  # few views have no usual error
    assert outliers(np.array([30.0, 5.0, 31.0, 29.0, np.nan, 12.0, 30.0])).tolist() == [1, 5]
