"""The viewer shows images of the model before and while its mesh is extracted."""

import importlib.util
import logging
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from runs import ROOT

from data.scenes.load import load_scene
from models.methods.conf import load_config
from models.results.context import EvalContext
from models.surface.mesh import Surface
from models.viewer import model_viewer, server
from models.viewer.crop import ConfKeys
from models.viewer.scene_display import wxyz_of
from models.viewer.scene_viewer import Place

pytestmark = pytest.mark.skipif(importlib.util.find_spec("viser") is None, reason="viser is optional, and missing")
CONF = ROOT / "confs/debug.conf"


class Log(logging.LoggerAdapter):
    """A log without progress bars."""

    def __init__(self):
        super().__init__(logging.getLogger("viewer"), {})

    def progress(self, items, **_options):
        return iter(items)


@dataclass(frozen=True)
class Grey(EvalContext):
    """A model whose images are grey; `sizes` collects theirs."""

    sizes: list = field(default_factory=list)

    def render(self, rays, shape):
        self.sizes.append(shape)
        return SimpleNamespace(rgb=np.full((*shape, 3), 0.5), normal=None, distance=None, opacity=None)


def test_images_come_before_the_mesh_and_while_it_is_extracted(tmp_path, monkeypatch):
    conf = load_config(CONF, "", (f"dataset.data_dir={ROOT}/data/demo",))
    scene, events = load_scene(conf.dataset), []
    pose = scene.c2w[0]
    camera = SimpleNamespace(on_update=lambda act: act, aspect=1.5, fov=0.8, wxyz=wxyz_of(pose), position=pose[:3, 3])

    def shown(image, **_options):
        events.append("cleared" if image is None else image.shape[:2])

    browser = SimpleNamespace(client_id=7, camera=camera, scene=SimpleNamespace(set_background_image=shown))
    welcomes = []

    def started(host, port, title, say):
        running = server.start(host, port, title, say)
        monkeypatch.setattr(running, "on_client_connect", welcomes.append)
        monkeypatch.setattr(running, "get_clients", lambda: {7: browser})
        return running

    monkeypatch.setattr(model_viewer, "start", started)
    experiment = SimpleNamespace(conf=conf, folder=tmp_path, scene=scene)
    model = Grey(experiment, None, 4, 1.0, None, Log(), None)

    def mesh(context):
        events.append("extraction")
        for welcome in welcomes:
            welcome(browser)  # a browser connects meanwhile
        for part in context.parts(range(3), "surface"):
            events.append(part)
        ball = trimesh.creation.icosphere()
        return Surface(ball, rgb=np.zeros((len(ball.vertices), 3), np.uint8))

    def no_more(_self, _seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("models.viewer.live_render.LiveRenderer.wait", no_more)
    place = Place("127.0.0.1", 9880, "en")
    model_viewer.look_at_model(lambda: model, mesh, {}, lambda path: None, ConfKeys(CONF, tmp_path), place)
    images = [event for event in events if isinstance(event, tuple)]
    assert len(model.sizes) == len(images) + 2  # two warm it up, before a browser connects
    assert events[:2] == ["extraction", 0] and isinstance(events[2], tuple)  # after the first part of three
    assert events.index(2) > 2 and events[-1] == "cleared"  # the mesh replaces the image
    sizes = [height * width for height, width in images]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]  # coarse first
