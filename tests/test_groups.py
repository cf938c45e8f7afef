"""Test photographs influence nothing of a training, whatever they show; validation photographs decide, and only they."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from rendered_photographs import ring, scene_of, sphere_depth
from runs import ROOT, SHORT, everything, saved
from test_fast_background import OPEN
from test_fast_neus import TINY
from test_gaussians import SMALL
from trainings import run_conf

from data.config import DatasetConfig
from data.io.images import read_image, write_image
from data.scenes.load import load_held_out, load_scene
from data.scenes.split import TEST, VALIDATION
from data.writers.neus import write_neus_scene
from models.evaluation import collapse

TESTED, DECIDING, TRAINED = (2, 7), (4,), (5,)
LONG = ("train.end_iter=6", "train.save_freq=2", "train.val_freq=3", "train.warm_up_end=2", *SHORT[4:])
GROUPS = ("dataset.test_dir=", f"dataset.test_views={list(TESTED)}", f"dataset.validation_views={list(DECIDING)}")
PACKED = ("samples=1024", "cells=16", "first_step=0.08", "last_step=0.04", "prune_every=2", "warm_up=1")
NERF = (
    *(f"model.density_grid.{key}" for key in ("levels=4", "coarsest=4", "finest=16", "log2_rows=10", "d_hidden=16")),
    *(f"model.radiance.{key}" for key in PACKED),
)
MLP = (
    *(f"model.sdf_network.{key}" for key in ("d_out=17", "d_hidden=16", "n_layers=2", "skip_in=[1]")),
    *(f"model.rendering_network.{key}" for key in ("d_feature=16", "d_hidden=16", "n_layers=1")),
    *("model.neus_renderer.n_samples=8", "model.neus_renderer.n_importance=8", "train.batch_size=64"),
)
DEPTH = (*OPEN, "model.background.depth_until=0.25", "model.background.points_from=0.25")
PATCHES = ("model.patches.begins=0", "model.patches.weight=0.5")
REFINED = "dataset.refine_cameras=focal"
EXPOSURE = ("model.photographs.exposure=true", "model.photographs.exposure_from=0")
# recipe, whether the scene has masks, further keys
CASES = {
    "fast, masks": ("fast", True, TINY),
    "fast, depth maps, triangulated points, exposure": ("fast", False, (*DEPTH, *EXPOSURE)),
    "fast, refined cameras": ("fast", False, (*OPEN, REFINED)),
    "fast, derived masks": ("fast", False, (*TINY, "dataset.masks_from_backdrop=true", "train.mask_weight=0.1")),
    "geo, masks, refined cameras": ("geo", True, (*TINY, *PATCHES, REFINED)),
    "geo": ("geo", False, (*OPEN, *PATCHES)),
    "fast_nerf, masks, exposure": ("fast_nerf", True, (*NERF, *EXPOSURE)),
    "fast_nerf": ("fast_nerf", False, (*NERF, "train.mask_weight=0")),
    "wmask_cpu": ("wmask_cpu", True, MLP),
    "wmask_cpu, derived masks": ("wmask_cpu", False, (*MLP, "dataset.masks_from_backdrop=true")),
    "gaussians, masks, exposure": ("gaussians", True, (*SMALL, *EXPOSURE)),
    "gaussians, refined cameras": ("gaussians", False, (*SMALL, REFINED)),
    "surfels, masks": ("surfels", True, SMALL),
    "surfels": ("surfels", False, (*SMALL, "train.mask_weight=0")),
}


@pytest.fixture(scope="module", params=[True, False], ids=["masks", "no masks"])
def both(request):
    return request.param


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """The folder of a textured sphere, by whether it has masks."""
    scene, folder = scene_of(ring(10)), tmp_path_factory.mktemp("scenes")
    masks = tuple(np.uint8(255 * (sphere_depth(pose) > 0)) for pose in scene.c2w)
    for has_masks, of_scene in ((True, replace(scene, masks=masks)), (False, scene)):
        write_neus_scene(folder / str(has_masks), of_scene)
    return {has_masks: folder / str(has_masks) for has_masks in (True, False)}


def poisoned(scene, folder, views):
    """A copy of the scene in which the first of the views, and its mask, is noise; others are inverted and shifted."""
    shutil.copytree(scene, folder)
    for place, view in enumerate(views):
        for path in folder.glob(f"*/{view:03d}.png"):
            pixels = read_image(path)
            noise = np.random.default_rng(view).integers(0, 256, pixels.shape, np.uint8)
            write_image(path, np.roll(~pixels, 4, axis=1) if place else noise)
    return folder


def trained(monkeypatch, recipe, scene, folder, *settings):
    """The last checkpoint of a short training that is scored and shown from the start."""
    monkeypatch.setattr(collapse, "SCORED_FROM", 1)
    values = (*settings, *LONG, *GROUPS, f"dataset.data_dir={scene}")
    assert run_conf(ROOT / f"confs/{recipe}.conf", folder, "--case", "x", settings=values) == 0
    return saved(folder, 6)


def decisions(checkpoint):
    """What was decided: the scores, and each of them by its step."""
    return checkpoint.state["scores"], [(step, score) for step, _, score in checkpoint.state["score_curve"]]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_test_photographs_change_no_bit_of_a_training(case, scenes, tmp_path, monkeypatch):
    recipe, has_masks, settings = CASES[case]
    scene = scenes[has_masks]
    kept = trained(monkeypatch, recipe, scene, tmp_path / "kept", *settings)
    other = poisoned(scene, tmp_path / "scene", TESTED)
    found = trained(monkeypatch, recipe, other, tmp_path / "found", *settings)
    assert everything(found) == everything(kept)
    assert decisions(found) == decisions(kept) and found.state["data"] == kept.state["data"]
