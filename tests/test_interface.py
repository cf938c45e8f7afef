"""models/interface.py: from a conf to a mesh and its metrics; the memory of finished work is returned."""

import gc
import re
import weakref

import numpy as np
import pytest
import trimesh
from runs import ROOT

from data.errors import UserError
from models import installed, interface
from models.experiment import open_training
from models.requests import EvaluationRequest, MeshRequest
from models.surface.visibility import Visibility


def example(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.search(r"```python\n(from pathlib.*?)```", text, re.DOTALL)[1]


@pytest.mark.slow
def test_the_example_of_the_page_gives_image_mesh_and_metrics(tmp_path):
    names, folder = {}, tmp_path / "interface"
    exec(example("usage.md").replace("exp/interface", str(folder)), names)
    assert names["steps"] == 20 and (folder / "report.html").is_file()
    scene, picture = names["scene"], names["image"]
    height, width = scene.images[3].shape[:2]
    assert picture.view == 3 and picture.path.is_file()
    assert picture.rendered.rgb.shape == (height // 4, width // 4, 3) == (*picture.rendered.distance.shape, 3)
    assert names["metrics"]["step"] == 20 and np.isfinite(names["metrics"]["psnr"])
    written = trimesh.load(folder / "mesh.ply", process=False)
    np.testing.assert_allclose(names["surface"].mesh.vertices, written.vertices, rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"color": "vertx"}, "color = 'vertx' must be one of 'vertex', 'texture', 'none'"),
        ({"clean": "all"}, "clean = 'all' must be one of None, 'pieces'"),
        ({"frame": "wrld"}, "frame = 'wrld' must be one of 'world', 'unit'"),
        ({"up": "q"}, "up = 'q' must be"),
        ({"output": "a.glb"}, "write Path('a.glb')"),
        ({"resolution": 32.5}, "resolution = 32.5 must be a whole number"),
    ],
)
def test_a_request_with_a_wrong_value_is_one_sentence(values, named):
    request = MeshRequest(**{"resolution": 32} | values)
    for call in (interface.extract_mesh, lambda conf, mesh: interface.evaluate(conf, EvaluationRequest(mesh))):
        with pytest.raises(UserError, match=re.escape(named)):
            call(None, request)


def test_the_installed_package_has_the_same_names():
    used = set(re.findall(r"interface\.(\w+)\(|\b(\w+Request)\(", example("usage.md")))
    assert set(installed.__all__) == {name for pair in used for name in pair if name}
    assert all(getattr(installed, name) is getattr(interface, name) for name in installed.__all__)


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
