"""Test photographs influence nothing of a training, whatever they show; validation photographs alone decide on it."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from rendered_photographs import ring, scene_of, sphere_depth
from runs import ROOT, SHORT, everything, saved
from synthetic_scene import change_cameras, dataset_config, save, write_scene
from test_fast_background import OPEN
from test_fast_neus import TINY
from test_gaussians import SMALL
from trainings import run_conf

from data.io.images import read_image, write_image
from data.prepare.load import load_scene
from data.scenes.readers.neus import write_neus_scene
from models.checkpoints.scenes import training_scene
from models.conf import load_config
from models.results import image_metrics
from models.results.experiment import Experiment
from models.results.image_metrics import deciding_group
from models.training import checkpoint as record
from models.training.checkpoint import recorded

TESTED, DECIDING, TRAINED = (2, 7), (4,), (5,)
LONG = ("train.end_iter=6", "train.save_freq=2", "train.val_freq=3", "train.warm_up_end=2", *SHORT[4:])
GROUPS = ("dataset.test_dir=", f"dataset.test_views={list(TESTED)}", f"dataset.validation_views={list(DECIDING)}")
PACKED = ("samples=1024", "cells=16", "first_step=0.08", "last_step=0.04", "prune_every=2")
NERF = (
    *(f"model.density_grid.{key}" for key in ("levels=4", "coarsest=4", "finest=16", "log2_rows=10", "d_hidden=16")),
    *(f"model.radiance.{key}" for key in PACKED),
)
MLP = ("model.neus_renderer.n_samples=8", "model.neus_renderer.n_importance=8", "train.batch_size=64")
DEPTH = (*OPEN, "model.open.depth_until=0.25")
PATCHES = ("train.patches_from=0", "train.patches_weight=0.5")
REFINED = "dataset.refine_cameras=focal"
EXPOSURE = ("model.photographs.exposure=true",)
DERIVED, ADJUSTED, PATCHED, EXPOSED = "masks: derived", "cameras adjusted to", "Loss/patches_loss", "Loss/exposure_loss"
SURFACE = "depth maps: "
# recipe, whether the scene has masks, further keys, and what the log or the report says of them
CASES = [
    ("fast", True, TINY, ()),
    ("fast", False, (*DEPTH, *EXPOSURE), (SURFACE, "SfM points triangulated", EXPOSED)),
    ("fast", False, (*OPEN, REFINED), (ADJUSTED,)),
    ("fast", False, (*TINY, "dataset.masks_from_backdrop=true", "train.mask_weight=0.1"), (DERIVED,)),
    ("geo", True, (*TINY, *PATCHES, REFINED), (ADJUSTED, PATCHED)),
    ("geo", False, (*OPEN, *PATCHES), (PATCHED,)),
    ("fast_nerf", True, (*NERF, *EXPOSURE), (EXPOSED,)),
    ("fast_nerf", False, (*NERF, "train.mask_weight=0"), ()),
    ("wmask_cpu", True, MLP, ()),
    ("wmask_cpu", False, (*MLP, "dataset.masks_from_backdrop=true"), (DERIVED,)),
    ("gaussians", True, (*SMALL, *EXPOSURE), (EXPOSED,)),
    ("gaussians", False, (*SMALL, REFINED), (ADJUSTED,)),
    ("surfels", True, SMALL, ()),
    ("surfels", False, (*SMALL, "train.mask_weight=0"), ()),
]


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
            pixels = read_image(path).squeeze()
            noise = np.random.default_rng(view).integers(0, 256, pixels.shape, np.uint8)
            write_image(path, np.roll(~pixels, 4, axis=1) if place else noise)
    return folder


def trained(monkeypatch, recipe, scene, folder, *settings):
    """The last checkpoint of a short training that is scored and shown from the start."""
    monkeypatch.setattr(image_metrics, "SCORED_FROM", 1)
    values = (*settings, *LONG, *GROUPS, f"dataset.data_dir={scene}")
    assert run_conf(ROOT / f"confs/{recipe}.conf", folder, "--case", "x", settings=values) == 0
    return saved(folder, 6)


def decisions(checkpoint):
    """What was decided: the scores, and each of them by its step."""
    found = recorded(checkpoint.state)
    return replace(found, curve=()), [(step, score) for step, _, score in found.curve]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "has_masks", "settings", "signs"), CASES)
def test_test_photographs_change_no_bit_of_a_training(
    recipe, has_masks, settings, signs, scenes, tmp_path, monkeypatch
):
    scene = scenes[has_masks]
    kept = trained(monkeypatch, recipe, scene, tmp_path / "kept", *settings)
    told = "".join((tmp_path / "kept" / name).read_text() for name in ("logs/train.log", "report.html"))
    assert [sign for sign in signs if sign not in told] == []
    other = poisoned(scene, tmp_path / "scene", TESTED)
    found = trained(monkeypatch, recipe, other, tmp_path / "found", *settings)
    assert everything(found) == everything(kept)
    assert decisions(found) == decisions(kept) and found.state["data"] == kept.state["data"]


def test_test_photographs_move_no_camera_of_the_training(scenes, tmp_path):
    groups = {"test_views": TESTED, "validation_views": DECIDING}
    conf = dataset_config(scenes[False], **groups, refine_cameras="focal")
    other = replace(conf, data_dir=str(poisoned(scenes[False], tmp_path / "scene", (*DECIDING, *TESTED))))
    kept, found = load_scene(conf), load_scene(other)
    assert "cameras adjusted" in kept.notes[0] and kept.notes == found.notes
    for name in ("c2w", "intrinsics", "scene_to_world"):
        assert getattr(found, name).tobytes() == getattr(kept, name).tobytes(), name
    assert found.points.xyz.tobytes() == kept.points.xyz.tobytes()


@pytest.mark.slow
def test_validation_photographs_alone_decide_which_weights_remain(scenes, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "FALL", 0.0)  # six steps move the scores by some tenths of a dB
    found = {}
    for views in ((), TESTED, DECIDING, TRAINED):
        scene = poisoned(scenes[True], tmp_path / f"scene{views}", views)
        found[views] = trained(monkeypatch, "wmask_cpu", scene, tmp_path / f"found{views}", *MLP)
    scores = {views: decisions(checkpoint)[0] for views, checkpoint in found.items()}
    weights = {views: everything(checkpoint) for views, checkpoint in found.items()}
    assert "PSNR of 1 validation photographs fell from " in capsys.readouterr().err
    assert (scores[()].falls, scores[()].best_step, scores[()].group) == (1, 2, "validation")
    assert weights[TESTED] == weights[()] and decisions(found[TESTED]) == decisions(found[()])
    assert scores[DECIDING].falls == 0 and weights[DECIDING] != weights[()]
    assert weights[TRAINED] != weights[()]
    assert scored_views_of(scenes[True], *GROUPS[:2]) == ("training", 8)  # without a validation photograph


def scored_views_of(scene, *settings):
    """Group and number of the photographs that can decide."""
    values = (*settings, f"dataset.data_dir={scene}")
    conf = load_config(ROOT / "confs/wmask_cpu.conf", "x", values)
    found = image_metrics.scored_views(Experiment(conf, scene, training_scene(conf), None))
    return found.group, found.scene.n_views


def test_what_decided_a_training_is_in_its_checkpoint():
    """In those of an earlier version test photographs, where there are some."""
    old = recorded({"scores": {"best": 30.0, "best_step": 1000, "end_iter": 2000}})
    records = (recorded({}), old, replace(old, group="validation"))
    assert [deciding_group(one, has_test=True) for one in records] == [None, "test", "validation"]
    assert deciding_group(old, has_test=False) == "training"


@pytest.mark.parametrize("alpha", [False, True], ids=["mask files", "alpha"])
def test_masks_and_alpha_of_test_photographs_change_no_region(alpha, tmp_path):
    """Nor whether an alpha channel is a mask, or which colour a backdrop has."""
    write_scene(tmp_path / "a", n_views=6, masks=not alpha, alpha=alpha)
    change_cameras(tmp_path / "a", **{f"scale_mat_{view}": None for view in range(6)})
    conf = dataset_config(tmp_path / "a", test_views=(0, 3), masks_from_backdrop=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for path in (path for view in conf.test_views for path in (tmp_path / "b").glob(f"*/{view:03d}.png")):
        save(path, np.roll(~read_image(path), 4, axis=1))
    kept, found = load_scene(conf), load_scene(replace(conf, data_dir=str(tmp_path / "b")))
    assert "hull of 4 masks" in kept.notes[-1] and kept.notes == found.notes
    assert found.scene_to_world.tobytes() == kept.scene_to_world.tobytes()
    assert all(map(np.array_equal, (*found.images, *found.masks), (*kept.images, *kept.masks)))
