"""A training is not continued on other data than it began with."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from runs import ROOT

from models.checkpoints.ours import StateError, check_state
from models.checkpoints.scenes import (
    for_photographs,
    require_not_trained_on,
    require_same_data,
    scene_state,
    training_scene,
)
from models.conf import load_config
from models.training.checkpoint import Checkpoint, CheckpointError


def demo(*keys):
    settings = (f"dataset.data_dir={ROOT / 'data/demo'}", *(f"dataset.{key}" for key in keys))
    return training_scene(load_config(ROOT / "confs/fast.conf", "demo", settings))


@pytest.fixture(scope="module")
def scene():
    return demo()


CHANGES = {
    "photographs": lambda scene: replace(scene, images=tuple(image[..., ::-1] for image in scene.images)),
    "cameras": lambda scene: replace(scene, c2w=np.roll(scene.c2w, 5, axis=0)),
    "photographs and masks": lambda scene: replace(
        scene,
        images=tuple(image[:, ::-1] for image in scene.images),
        masks=tuple(mask[:, ::-1] for mask in scene.masks),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_data_are_named(name, scene):
    checkpoint = SimpleNamespace(state=check_state(scene_state(scene)), step=100)
    require_same_data(checkpoint, scene)
    require_same_data(SimpleNamespace(state={}, step=100), CHANGES[name](scene))
    with pytest.raises(CheckpointError, match=f"^the {name} of demo changed since the checkpoint of step 100: restore"):
        require_same_data(checkpoint, CHANGES[name](scene))


@pytest.mark.parametrize("keys", [("downscale=2",), ("test_every=8",), ("masks_from_backdrop=False",)])
def test_other_keys_of_the_conf_are_no_change(keys, scene):
    checkpoint = SimpleNamespace(state=check_state(scene_state(scene)), step=100)
    require_same_data(checkpoint, demo(*keys))
    require_same_data(checkpoint, replace(scene, masks=None))


def test_other_training_photographs_are_named():
    checkpoint = SimpleNamespace(state=check_state(scene_state(demo("test_every=8"))), step=100)
    with pytest.raises(CheckpointError, match=r"^the checkpoint of step 100 was not trained on 000\.png, 008\.png"):
        require_same_data(checkpoint, demo("test_views=[1,2,3,4,5,6]"))


def test_photographs_trained_on_are_no_test_photographs(scene):
    checkpoint = SimpleNamespace(state=check_state(scene_state(demo("test_every=8"))), step=100)
    with pytest.raises(CheckpointError, match=r"was trained on 001\.png, 002\.png, .* test photographs now"):
        require_not_trained_on(checkpoint, scene)
    moved = replace(scene, c2w=np.roll(scene.c2w, 5, axis=0))  # those of another folder, with the same names
    require_not_trained_on(checkpoint, moved)
    require_not_trained_on(SimpleNamespace(state={}, step=100), scene)


@pytest.mark.parametrize("value", [3, {"photographs": 3}, {"other": {}}, {"cameras": {"a": [float("nan")]}}])
def test_damaged_numbers_of_a_scene_are_refused(value):
    with pytest.raises(StateError, match="the data in its state is invalid"):
        check_state({"data": value})


def test_a_frame_may_be_small_and_has_a_size():
    for size in (1e-6, 1e6):
        assert check_state({"scene_to_world": np.diag([size, size, size, 1.0]).tolist()})
    with pytest.raises(StateError, match="scene_to_world"):
        check_state({"scene_to_world": np.diag([0.0, 1.0, 1.0, 1.0]).tolist()})


def test_more_photographs_keep_the_exposure_of_those_trained_on(scene):
    """Photographs 0 to 5 without 2 are trained on; then 5, 0, 2 and 3 are there."""
    some = replace_views(scene, [0, 1, 3, 4, 5])
    affine = np.arange(5 * 12, dtype=np.float32).reshape(5, 12)
    moments = {kind: {"exposure.affine": affine + 1} for kind in ("exp_avg", "exp_avg_sq")}
    state = check_state(scene_state(some)) | {"sampler": {}, "jitter": {}, "seconds": 1.0}
    trained = Checkpoint(7, {"exposure": {"affine": affine}, "other": {}}, moments, 7, state)
    found = for_photographs(trained, replace_views(scene, [5, 0, 2, 3]))
    expected = np.stack([affine[4], affine[0], np.zeros(12), affine[2]])
    assert np.array_equal(found.tensors["exposure"]["affine"], expected) and found.tensors["other"] == {}
    assert found.moments["exp_avg"]["exposure.affine"][2].max() == 0 and found.state.keys().isdisjoint(
        {"sampler", "jitter"}
    )
    assert for_photographs(trained, some) is trained


def replace_views(scene, views):
    chosen = {name: tuple(getattr(scene, name)[view] for view in views) for name in ("images", "masks", "image_names")}
    return replace(scene, **chosen, c2w=scene.c2w[views], intrinsics=scene.intrinsics[views])
