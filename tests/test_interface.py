"""models/interface.py: from a conf to a mesh and its metrics, without the command line."""

import re
import subprocess
import sys

import numpy as np
import pytest
import trimesh
from runs import ROOT

from data.errors import UserError
from models import installed, interface


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
    assert (folder / "report/metrics.json").is_file()
    surface, written = names["surface"], trimesh.load(folder / "mesh.ply", process=False)
    np.testing.assert_allclose(surface.mesh.vertices, written.vertices, rtol=1e-5)
    unit = interface.extract_mesh(names["conf"], interface.MeshRequest(32, frame="unit", output=folder / "unit.ply"))
    matrix = scene.scene_to_world
    np.testing.assert_allclose(unit.mesh.vertices @ matrix[:3, :3].T + matrix[:3, 3], surface.mesh.vertices, rtol=1e-9)
    with pytest.raises(UserError, match="--is_continue to continue, --overwrite to start again"):
        interface.train(names["conf"])
    with pytest.raises(UserError, match="view|photograph"):
        interface.render(names["conf"], 10_000)


def test_an_experiment_without_a_checkpoint_is_a_sentence(tmp_path):
    untrained = interface.read_conf("debug.conf", overrides=[f"general.base_exp_dir={tmp_path}/none"])
    with pytest.raises(UserError, match="no checkpoint"):
        interface.evaluate(untrained, interface.EvaluationRequest(interface.MeshRequest(32)))


def test_the_pages_show_the_same_example():
    assert example("usage.md") == example("usage.zh-CN.md")


def test_the_installed_package_has_the_same_names():
    used = set(re.findall(r"interface\.(\w+)\(|\b(\w+Request)\(", example("usage.md")))
    assert set(installed.__all__) == {name for pair in used for name in pair if name}
    assert all(getattr(installed, name) is getattr(interface, name) for name in installed.__all__)
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        installed.tarin  # noqa: B018


@pytest.mark.cli
def test_a_conf_is_read_without_loading_jittor(tmp_path):
    program = "import sys; from models.interface import read_conf, load_scene\n"
    program += "scene = load_scene(read_conf('debug.conf'))\nassert 'jittor' not in sys.modules\nprint(scene.n_views)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "") and int(done.stdout) > 10
