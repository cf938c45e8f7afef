"""A training is not continued on other data than it began with."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from runs import ROOT

from models.checkpoints.ours import CheckpointError
from models.checkpoints.same_scene import require_same_data, scene_state
from models.checkpoints.state import StateError, check_state
from models.experiment import training_scene
from models.methods.conf import load_config


@pytest.fixture(scope="module")
def scene():
    return training_scene(load_config(ROOT / "confs/fast.conf", "demo", (f"dataset.data_dir={ROOT / 'data/demo'}",)))


CHANGES = {
    "photographs": lambda scene: replace(scene, images=tuple(255 - image for image in scene.images)),
    "cameras": lambda scene: replace(scene, c2w=np.roll(scene.c2w, 5, axis=0)),
    "masks": lambda scene: replace(scene, masks=None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_data_are_named(name, scene):
    checkpoint = SimpleNamespace(state=check_state(scene_state(scene)), step=100)
    require_same_data(checkpoint, scene)
    require_same_data(SimpleNamespace(state={}, step=100), CHANGES[name](scene))
    with pytest.raises(CheckpointError, match=f"^the {name} of demo changed since the checkpoint of step 100: restore"):
        require_same_data(checkpoint, CHANGES[name](scene))


@pytest.mark.parametrize("value", [3, {"photographs": 3}, {"other": []}, {"cameras": [float("nan")]}, {"masks": ["1"]}])
def test_damaged_numbers_of_a_scene_are_refused(value):
    with pytest.raises(StateError, match="the data in its state are not finite numbers"):
        check_state({"data": value})
