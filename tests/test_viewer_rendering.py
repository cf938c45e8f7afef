"""The viewer beside work: images before and during the extraction of a mesh, and while a training runs."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import trimesh
from browsing import demo_scene, needs_viser
from runs import ROOT, run

from models.commands.interface import read_conf
from models.conf import load_config
from models.mesh.mesh import Surface
from models.requests import MeshRequest
from models.results.context import EvalContext
from models.results.experiment import Experiment
from models.viewer import server, sessions
from models.viewer.scene_display import wxyz_of
from models.viewer.sessions import Place
from models.viewer.tools import ConfKeys

pytestmark = needs_viser
CONF = ROOT / "confs/debug.conf"


def test_images_come_before_the_mesh_and_while_it_is_extracted(tmp_path, monkeypatch):
    conf, scene = load_config(CONF, "", (f"dataset.data_dir={ROOT}/data/demo",)), demo_scene()
    events, sizes, welcomes, pose = [], [], [], scene.c2w[0]
    camera = SimpleNamespace(on_update=lambda act: act, aspect=1.5, fov=0.8, wxyz=wxyz_of(pose), position=pose[:3, 3])

    def shown(image, **_options):
        events.append("cleared" if image is None else image.shape[:2])

    browser = SimpleNamespace(client_id=7, camera=camera, scene=SimpleNamespace(set_background_image=shown))

    def started(host, port, title, say):
        running = server.start(host, port, title, say)
        monkeypatch.setattr(running, "on_client_connect", welcomes.append)
        monkeypatch.setattr(running, "get_clients", lambda: {7: browser})
        return running

    def render(_self, rays, shape):  # a model whose images are grey
        sizes.append(shape)
        return SimpleNamespace(rgb=np.full((*shape, 3), 0.5), normal=None, distance=None, opacity=None)

    def mesh(context, request):
        assert request is wanted
        events.append("extraction")
        for welcome in welcomes:
            welcome(browser)  # a browser connects meanwhile
        events.extend(context.parts(range(3), "surface"))
        ball = trimesh.creation.icosphere()
        return Surface(ball, rgb=np.zeros((len(ball.vertices), 3), np.uint8))

    monkeypatch.setattr(sessions, "start", started)
    monkeypatch.setattr(EvalContext, "render", render)
    monkeypatch.setattr("models.results.meshes.finished_mesh", mesh)
    monkeypatch.setattr("models.viewer.live_render.LiveRenderer.wait", Mock(side_effect=KeyboardInterrupt))
    log = SimpleNamespace(progress=lambda items, **_: iter(items), info=str, warn=str, warning=str)
    model = EvalContext(SimpleNamespace(conf=conf, folder=tmp_path, scene=scene), None, 4, 1.0, log, None)
    place, wanted = Place("127.0.0.1", 9880, "en"), MeshRequest(16)
    sessions.look_at_model(model, wanted, {}, ConfKeys(CONF, tmp_path), place)
    images = [event for event in events if isinstance(event, tuple)]
    assert len(sizes) == len(images) + 2  # two warm it up, before a browser connects
    assert events[:2] == ["extraction", 0] and isinstance(events[2], tuple)  # after the first part of three
    assert events.index(2) > 2 and events[-1] == "cleared"  # the mesh replaces the image
    assert images == sorted(images) and images[0] < images[-1]  # coarse first


def test_a_fault_of_the_viewer_closes_it_and_raises_nothing(tmp_path):
    told, place, keys = [], Place("127.0.0.1", 9600, "en"), ConfKeys(CONF, tmp_path)
    viewer = sessions.ViewerCallback(keys, place, told.append)
    viewer.begin(Experiment(read_conf("debug.conf"), tmp_path, demo_scene(), None))
    viewer.scalars(2, 1.0, {"Statistics/psnr": 20.0})
    assert told[0].startswith("viewer: http://localhost:")
    viewer.mesh(2, None)  # no mesh at all: a fault
    assert told[-1].startswith("the viewer is closed, the training continues")
    count = len(told)
    viewer.scalars(4, 1.0, {"Statistics/psnr": 20.0})
    viewer.after_step(lambda: 1 / 0)
    viewer.write(4, 1.0, "finished")
    assert len(told) == count


@pytest.mark.slow
def test_a_training_with_the_viewer_ends_as_one_without(tmp_path, capsys):
    settings = ("train.end_iter=4", "train.warm_up_end=1", "train.val_freq=0", "train.report_freq=2")
    settings += ("train.val_mesh_freq=4", "train.mesh_resolution=24")
    assert run(tmp_path, "--view", "--port", "9700", settings=settings) == 0
    told = capsys.readouterr().out
    assert "viewer: http://localhost:97" in told and "the training ended at step 4, and the viewer is closed" in told
    assert (tmp_path / "checkpoints/ckpt_000004.safetensors").is_file()
