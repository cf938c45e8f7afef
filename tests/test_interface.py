"""The Python interface: from photographs to a mesh and its metrics, silently; the memory of models is returned."""

import gc
import re
import shutil
import sys
import weakref
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import trimesh
from runs import ROOT

from data.errors import UserError
from data.prepare.load import load_scene, load_views
from models.commands import installed, interface
from models.mesh.visibility import Visibility
from models.requests import EvaluationRequest, MeshRequest, VideoRequest
from models.results.trained import TrainedModel

STEPS = 4
TINY = ("general.base_exp_dir={}", f"train.end_iter={STEPS}", "train.batch_size=64", "train.mesh_resolution=16")
TINY += ("model.packed.samples=1024", "model.sdf_grid.levels=2", "model.color_grid.levels=2", "train.val_freq=0")
TINY += ("train.val_mesh_freq=0", "dataset.test_every=8", "train.report_freq=1")
SPHERE = MeshRequest(16, threshold=-0.1)


def example(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.search(r"```python\n(from pathlib.*?)```", text, re.DOTALL)[1]


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    """Of a training of a few steps on the bundled scene."""
    folder = tmp_path_factory.mktemp("interface")
    conf = interface.read_conf("demo.conf", overrides=[text.format(folder / "run") for text in TINY])
    assert interface.train(conf) == STEPS
    return conf


@pytest.mark.slow
def test_the_example_of_the_page_plots_losses_and_gives_video_and_mesh(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    code, names = example("usage.md"), {}
    assert len(code.splitlines()) < 30 and code == example("usage.zh-CN.md")
    for text, small in (
        ("train.end_iter=2000", '", "'.join(TINY[1:])),
        ("seconds=2, level=4", "seconds=0.2, level=8"),
        ("MeshRequest(256", "MeshRequest(24, threshold=-0.1, texture_size=64"),
    ):
        assert text in code
        code = code.replace(text, small)

    def prepared(conf, images):  # takes COLMAP a minute
        shutil.copytree(ROOT / "data/demo", conf.dataset.data_dir)

    monkeypatch.setattr(interface, "prepare", prepared)
    exec(code, names)
    assert [step for step, _ in names["losses"]] == list(range(1, STEPS + 1))
    assert all((tmp_path / name).stat().st_size > 0 for name in ("loss.png", "turntable.mp4", "bear.glb"))
    assert names["image"].view == 3 and np.isfinite(names["image"].figures.psnr)
    assert trimesh.load(tmp_path / "bear.glb", force="mesh").visual.kind == "texture"


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
def test_nothing_is_printed_and_no_command_line_is_read(conf, capfd, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x", "--mode", "nonsense", "--help"])
    found, told = interface.inspect(conf), []
    assert found and interface.load_scene(conf).n_views > 2
    with interface.telling(told.append):
        interface.train(conf, overwrite=True)
    interface.train(conf, overwrite=True)
    with interface.open_model(conf) as model:
        picture = interface.render(model, 1, level=8)
        film = VideoRequest("0,1", ("normals", "mesh"), 0.1, level=8, mesh=SPHERE)
        assert interface.render_video(model, film).is_file()
        surface = interface.extract_mesh(model, SPHERE)
        metrics = interface.evaluate(model, EvaluationRequest(SPHERE))
    assert picture.rendered.rgb.shape == (*picture.rendered.distance.shape, 3) and metrics["step"] == STEPS
    written = trimesh.load(Path(conf.general.base_exp_dir) / f"meshes/{STEPS:08d}.ply", process=False)
    np.testing.assert_allclose(surface.mesh.vertices, written.vertices, rtol=1e-5)
    assert capfd.readouterr() == ("", "")
    assert any(line.startswith(f"trained to step {STEPS}") for line in told)


@pytest.mark.slow
def test_a_model_is_opened_without_what_only_a_training_needs(conf, monkeypatch):
    """Without sampler, optimiser, watch and visual hull, and without photographs where a result needs none."""
    poison = Mock(side_effect=AssertionError("made for results"))
    for name in ("estimators.packed.PackedBatches", "training.optimizer.Optimizer", "training.trainer.Trainer"):
        monkeypatch.setattr(f"models.{name}.__init__", poison)
    for name in ("models.estimators.packed.carve_unit_sphere", "models.training.watch.Watch.__init__"):
        monkeypatch.setattr(name, poison)
    monkeypatch.setattr("models.checkpoints.scenes.load_scene", poison)
    with interface.open_model(conf) as model:
        assert len(interface.extract_mesh(model, SPHERE).mesh.faces)
        assert interface.render_video(model, VideoRequest(seconds=0.1, level=8)).is_file()
        with pytest.raises(AssertionError, match="made for results"):
            interface.extract_mesh(model, MeshRequest(16, color="vertex"))


@pytest.mark.parametrize(
    "keys", [(), ("dataset.downscale=3", "dataset.bbox=-1 -1 -1 2 1 1"), ("dataset.roi=4 -7 1.5 2",)]
)
def test_cameras_without_photographs_are_those_of_the_scene(keys):
    conf = interface.read_conf("demo.conf", overrides=keys)
    scene, views = load_scene(conf.dataset), load_views(conf.dataset, np.eye(4))
    assert views.image_names == scene.image_names and views.photographs == scene.photographs
    assert list(views.sizes) == [scene.size(view) for view in range(scene.n_views)]
    for name in ("intrinsics", "c2w", "scene_to_world", "bbox_min", "bbox_max"):
        np.testing.assert_array_equal(getattr(views, name), getattr(scene, name))


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
    for call in (interface.extract_mesh, lambda model, mesh: interface.evaluate(model, EvaluationRequest(mesh))):
        with pytest.raises(UserError, match=re.escape(named)):
            call(Mock(TrainedModel), request)


def test_the_installed_package_has_the_same_names():
    used = set(re.findall(r"neus\.(\w+)", example("usage.md")))
    assert used <= set(installed.__all__)
    assert all(getattr(installed, name) is getattr(interface, name) for name in installed.__all__)
    source = Path(interface.__file__).read_text(encoding="utf-8")
    assert {"reconstruct", *re.findall(r"import (\w+) as \1$", source, re.MULTILINE)} == set(installed.__all__)


@pytest.mark.slow
def test_the_model_of_finished_work_is_freed(conf):
    """It is in a reference cycle, so Python alone would free it at some later time."""
    gc.disable()
    try:
        with interface.open_model(conf) as model:
            interface.extract_mesh(model, SPHERE)
            held = weakref.ref(model.context.model)
        assert held() is None
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
