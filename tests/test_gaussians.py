"""Gaussians as a kind of model: whole runs on the bundled scene, resume, and what becomes of their number."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh
from runs import ROOT, everything, saved
from synthetic_scene import write_scene
from trainings import stopped_after

import exp_runner
from data.errors import UserError
from data.io.images import read_image
from data.rays import PinholeCamera
from models.conf import load_config
from models.config.strict import ConfigError
from models.fields.state import take_rows
from models.machine.backend import jt
from models.methods.gaussians import splats as density
from models.methods.gaussians.batch import Picture
from models.methods.gaussians.conf import SplatsConfig
from models.methods.gaussians.splats import Points, first_points, require_seen
from models.methods.registry import build_model
from models.plan import Decision, TrainingPlan

SMALL = (
    *(f"model.gaussians.{key}" for key in ("first=300", "most=400")),
    *("train.end_iter=12", "train.save_freq=6", "train.report_freq=1"),
)


def run(folder, form, *arguments, settings=()):
    """The command line on a scene in `folder`/scene; returns the exit status."""
    values = (f"general.base_exp_dir={folder}/exp", f"dataset.data_dir={folder}/scene", *SMALL)
    values += (f"model.gaussians.form={form}", *settings)
    flags = [flag for value in values for flag in ("--set", value)]
    return exp_runner.main(["--conf", str(ROOT / "confs/gaussians.conf"), "--case", "x", *arguments, *flags])


@pytest.fixture(scope="module", params=["ellipsoids", "surfels"])
def trained(request, tmp_path_factory):
    """Twelve steps with a checkpoint after six, in either form; their number changes in every other step."""
    form = request.param
    folder = tmp_path_factory.mktemp(form)
    write_scene(folder / "scene")
    settings = tuple(f"train.{key}" for key in ("distortion_weight=1", "normal_weight=0.1")) * (form == "surfels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(density, "EVERY", 2)
        assert run(folder, form, settings=settings) == 0
        yield folder, form, settings


@pytest.mark.slow
def test_their_number_grows_and_a_resumed_run_is_the_unbroken_one(trained, tmp_path):
    folder, form, settings = trained
    last = saved(folder / "exp", 12)
    arrays = [*last.tensors["splats"].values()]
    arrays += [array for named in last.moments.values() for array in named.values()]
    (count,) = {len(array) for array in arrays}
    assert 300 < count <= 400 and "splats" in (folder / "exp/logs/train.log").read_text()
    shutil.copytree(folder / "scene", tmp_path / "scene")
    stopped_after(6, folder / "exp", tmp_path / "exp")
    assert run(tmp_path, form, "--is_continue", settings=settings) == 0
    assert everything(saved(tmp_path / "exp", 12)) == everything(last)


@pytest.mark.slow
def test_pictures_and_meshes_are_made_like_those_of_every_kind(trained):
    folder, form, settings = trained
    assert run(folder, form, "--mode", "validate_image", "--image", "1", settings=settings) == 0
    (path,) = (folder / "exp/validations_fine").glob("*_1.png")
    assert read_image(path).any()
    assert run(folder, form, "--mode", "validate_mesh", "--resolution", "32", settings=settings) == 0
    (mesh,) = (folder / "exp/meshes").glob("*.ply")
    assert len(trimesh.load(mesh, process=False).faces) > 0


def test_exposures_are_of_their_photographs_and_the_identity_on_average():
    conf = load_config(ROOT / "confs/gaussians.conf", "x", ["model.photographs.exposure=true"])
    plan = TrainingPlan(exposure=Decision(True))
    model = build_model(conf.model, conf.train, np.random.default_rng(0), plan)
    rng = np.random.default_rng(1)
    model.exposure.affine.update(jt.array(rng.normal(0, 0.1, (1, 12)).astype(np.float32)).detach())
    rgb = jt.array(rng.random((4, 5, 3)).astype(np.float32))
    assert np.allclose(model.exposure.of_picture(rgb, 0).numpy(), rgb.numpy(), atol=1e-6)
    take_rows(model.exposure, {"affine": (3, 12)})
    affine = rng.normal(0, 0.1, (3, 12)).astype(np.float32)
    model.exposure.affine.update(jt.array(affine).detach())
    rays = jt.array(np.full(20, 2))
    expected = model.exposure(rgb.reshape((-1, 3)), rays).numpy().reshape(4, 5, 3)
    assert np.allclose(model.exposure.of_picture(rgb, 2).numpy(), expected, atol=1e-6)
    assert not np.allclose(model.exposure.of_picture(rgb, 1).numpy(), expected, atol=1e-2)


def test_cameras_that_see_none_of_the_first_splats_are_one_sentence():
    camera = PinholeCamera(np.array([[50, 0, 10], [0, 50, 10], [0, 0, 1.0]]), np.eye(4), 20, 20)
    behind, ahead = (Points(np.array([[0.0, 0.0, z]]), np.zeros((1, 3))) for z in (-3.0, 3.0))
    require_seen(ahead, [camera], "scene")
    with pytest.raises(UserError, match="scene: no photograph sees"):
        require_seen(behind, [camera], "scene")


def test_without_masks_some_of_the_first_ones_are_outside():
    conf, scene = SplatsConfig(first=1000), SimpleNamespace(points=None, masks=None)
    found = first_points(scene, conf, False, np.random.default_rng(0))
    assert 0.25 < np.mean(np.linalg.norm(found.xyz, axis=1) > 1.0) < 0.35


def test_the_noise_of_a_mask_does_not_belong_to_the_object():
    mask = np.float32([[0.0, 3.0 / 255.0, 0.4, 1.0]])
    picture = Picture(0, np.zeros(17, np.float32), np.full((1, 4, 3), 0.2, np.float32), mask)
    white = picture.target(True, np.ones(3)).numpy()[0, :, 0]
    assert np.allclose(white, [1.0, 1.0, 0.2, 0.2]) and np.allclose(picture.target(False, np.ones(3)).numpy(), 0.2)


def test_their_number_changes_until_four_fifths_of_the_training(monkeypatch):
    monkeypatch.setattr(density, "EVERY", 100)
    assert [step for step in range(1, 4001) if density.is_due(step, 4000)] == list(range(100, 3200, 100))


def splats(count, opacity=0.0, size=-3.0):
    """Numbers of some splats."""
    rng = np.random.default_rng(1)
    found = {name: rng.normal(size=(count, width)) for name, width in (("means", 3), ("quats", 4), ("dc", 3))}
    found |= {"sizes": np.full((count, 3), size), "opacities": np.full((count, 1), opacity)}
    return {name: value.astype(np.float32) for name, value in found.items()} | {
        "rest": np.zeros((count, 15, 3), np.float32)
    }


def test_the_bound_on_their_number_holds(monkeypatch):
    conf, rng = SplatsConfig(first=5, most=7), np.random.default_rng(0)
    for growth in (1.05, 2.0):
        monkeypatch.setattr(density, "GROWTH", growth)
        kept, added = density.relocated(splats(6), conf, rng)
        assert len(kept) + len(added["means"]) == 7
    assert density.relocated(splats(7), conf, rng) is None
    assert density.relocated(splats(5, opacity=-10.0), conf, rng) is None


def test_copies_at_one_place_share_its_opacity_and_absorb_as_much_light():
    copies = 3
    opacity = np.array([0.05, 0.5, 0.9])
    new, factor = density.shared(opacity, np.full(3, copies))
    assert np.allclose(1 - (1 - new) ** copies, opacity)
    # the light that a line through it loses, summed over a line of offsets, is what one splat takes
    x = np.linspace(-30, 30, 60001)
    one = opacity[:, None] * np.exp(-0.5 * x**2)
    all_of_them = 1 - (1 - new[:, None] * np.exp(-0.5 * (x / factor[:, None]) ** 2)) ** copies
    assert np.allclose(all_of_them.sum(axis=1), one.sum(axis=1), rtol=2e-3)


def test_values_that_contradict_each_other_are_sentences():
    for setting, words in (("first=70000", "must not be above most"),):
        with pytest.raises(ConfigError, match=words):
            load_config(ROOT / "confs/gaussians.conf", "x", [f"model.gaussians.{setting}"])
