"""The viewer while a training runs: a small share of its time, and a fault of it is no fault of the training."""

import importlib.util

import pytest
from runs import ROOT, run

from data.scenes.load import load_scene
from models.methods.conf import load_config
from models.viewer.crop import ConfKeys
from models.viewer.model_viewer import ViewerCallback
from models.viewer.scene_viewer import Place

pytestmark = pytest.mark.skipif(importlib.util.find_spec("viser") is None, reason="viser is optional, and missing")


@pytest.fixture
def follower(tmp_path):
    told = []
    conf = load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",))
    found = ViewerCallback(
        load_scene(conf.dataset),
        ConfKeys(ROOT / "confs/debug.conf", tmp_path),
        1,
        tmp_path,
        Place("127.0.0.1", 9600, "en"),
        told.append,
    )
    yield found, told
    found.write(1, 1.0, "stopped")


def test_a_fault_of_the_viewer_closes_it_and_raises_nothing(follower):
    viewer, told = follower
    viewer.scalars(2, 1.0, {"Statistics/psnr": 20.0})
    assert told[0].startswith("viewer: http://localhost:")
    viewer.mesh(2, None)  # no mesh at all: a fault
    assert told[-1].startswith("the viewer is closed, the training continues")
    count = len(told)
    viewer.scalars(4, 1.0, {"Statistics/psnr": 20.0})
    viewer.after_step(lambda: 1 / 0)
    viewer.write(4, 1.0, "finished")
    assert len(told) == count


def test_the_end_of_a_training_closes_the_viewer(follower):
    viewer, told = follower
    viewer.write(4, 1.0, "training")
    assert len(told) == 1
    viewer.write(4, 1.0, "finished")
    assert "--mode view shows the model again" in told[-1]


@pytest.mark.slow
def test_a_training_with_the_viewer_ends_as_one_without(tmp_path, capsys):
    settings = ("train.end_iter=4", "train.warm_up_end=1", "train.val_freq=0", "train.report_freq=2")
    settings += ("train.val_mesh_freq=4", "train.mesh_resolution=24")
    assert run(tmp_path, "--view", "--port", "9700", settings=settings) == 0
    told = capsys.readouterr().out
    assert "viewer: http://localhost:97" in told and "the training ended at step 4, and the viewer is closed" in told
    assert (tmp_path / "checkpoints/ckpt_000004.safetensors").is_file()
