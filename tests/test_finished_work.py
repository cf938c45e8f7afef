"""The memory of finished work is returned, for the next work in the process."""

import gc
import weakref

import numpy as np
import pytest
import trimesh

from models import interface
from models.experiment import open_training
from models.surface.visibility import Visibility


@pytest.mark.slow
def test_the_model_of_finished_work_is_freed(tmp_path):
    """It is in a reference cycle, so Python alone would free it at some later time."""
    conf = interface.read_conf("debug.conf", overrides=[f"general.base_exp_dir={tmp_path / 'work'}"])
    experiment = open_training(conf, False, None, True, lambda text: None)
    gc.disable()
    try:
        assert interface.work_on(experiment, lambda runner: weakref.ref(runner.trainer.model))() is None
    finally:
        gc.enable()


def test_a_mesh_does_not_keep_the_data_of_ray_casting():
    mesh = trimesh.creation.icosphere(subdivisions=1)
    visibility = Visibility(mesh)
    assert visibility.sees(mesh.vertices, mesh.vertices, np.array([0.0, 0.0, 3.0])).any()
    caster = weakref.ref(visibility._mesh)
    del visibility
    gc.collect()
    assert caster() is None and len(mesh.faces) > 0
