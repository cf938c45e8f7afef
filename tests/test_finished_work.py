"""The memory of finished work is returned, for the next work in the process."""

import gc
import weakref

import pytest

from models import interface
from models.experiment import open_training


@pytest.mark.slow
def test_the_model_of_finished_work_is_freed(tmp_path):
    """It is in a reference cycle, so Python alone would free it at some later time."""
    conf = interface.read_conf("demo_mlp.conf", overrides=[f"general.base_exp_dir={tmp_path / 'work'}"])
    experiment = open_training(conf, False, None, True, lambda text: None)
    gc.disable()
    try:
        assert interface.work_on(experiment, lambda runner: weakref.ref(runner.trainer.model))() is None
    finally:
        gc.enable()
