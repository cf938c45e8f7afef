"""The plan of a training: what decides each row, how a key forces another value, and what a resume keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runs import ROOT, saved
from synthetic_scene import write_scene
from test_fast_background import CONF, OPEN
from test_fast_neus import SHORT
from trainings import UNSWEPT, run_conf

from data.errors import UserError
from data.parsed_scene import SparsePoints
from data.prepare.load import load_scene
from models.checkpoints.ours import StateError, check_state
from models.checkpoints.scenes import measured
from models.conf import flat, load_config
from models.config.hocon import migrate
from models.methods.registry import build_model, decide
from models.plan import DEPTH_MAPS, Decision, EarlierPlan, plan_from_state
from models.rendering.loss_table import weights_of
from models.rendering.losses import LOSSES
from models.results.context import with_table

FAST = ROOT / "confs/fast.conf"


@pytest.fixture(scope="module")
def demo():
    return load_scene(load_config(ROOT / "confs/demo.conf").dataset)


def plan_of(scene, *settings, before=UNSWEPT, conf=FAST):
    made = load_config(conf, "demo", settings)
    return decide(made.model, made.train, measured(scene), before)


def on_noise(scene):
    """The scene with borders of many colours."""
    rng = np.random.default_rng(0)
    return replace(scene, images=tuple(rng.integers(0, 256, image.shape, dtype=np.uint8) for image in scene.images))


def from_within(scene):
    """The scene with cameras in the region that look away from its centre."""
    c2w = scene.c2w @ np.diag([-1, 1, -1, 1])
    c2w[:, :3, 3] *= 0.5 / np.linalg.norm(c2w[:, :3, 3], axis=1, keepdims=True)
    return replace(scene, c2w=c2w)


def with_points(scene):
    directions = np.random.default_rng(0).normal(size=(300, 3))
    xyz = 0.5 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    points = SparsePoints(xyz, np.full(300, 5), np.ones(300), np.zeros((300, 3), np.uint8))
    return replace(scene, points=points)


def uneven(scene):
    gains = np.exp(np.random.default_rng(0).uniform(-0.7, 0.7, scene.n_views))
    images = [
        (image * min(gain, 255 / image.max())).astype(np.uint8) for image, gain in zip(scene.images, gains, strict=True)
    ]
    return replace(scene, images=tuple(images))


WITHOUT = "train.mask_weight=0"
DECISIONS = {
    "masks": ((), lambda scene: scene, "given", WITHOUT, "none"),
    "derived": ((), lambda scene: replace(scene, backdrop=np.zeros(3)), "derived", WITHOUT, "none"),
    "background": ((WITHOUT,), on_noise, "contracted", "model.plan.background=plain", "plain"),
    "plain": ((WITHOUT,), lambda scene: scene, "plain", "model.plan.background=contracted", "contracted"),
    "region": ((), from_within, "interior", "model.plan.region=object", "object"),
    "exposure": ((), uneven, True, "model.photographs.exposure=false", False),
    "points": ((), with_points, "given", "train.points_weight=0", "none"),
    "largest_inv_s": ((), lambda scene: scene, 4.0, "model.inside.largest_inv_s=7", 7.0),
    "smooth": ((), lambda scene: scene, 4, "model.sdf_grid.smooth=2", 2),
    "prune_from": ((WITHOUT,), on_noise, 0.3, "model.open.prune_from=0.5", 0.5),
}
NAMES = {"derived": "masks", "plain": "background"}


@pytest.mark.parametrize("case", DECISIONS)
def test_each_decision_follows_the_scene_and_its_key_forces_another(demo, case):
    settings, changed, found, setting, forced = DECISIONS[case]
    name, scene = NAMES.get(case, case), changed(demo)
    chosen = getattr(plan_of(scene, *settings), name)
    other = getattr(plan_of(scene, *settings, setting), name)
    assert (chosen.value, chosen.is_forced) == (found, False)
    assert (other.value, other.is_forced) == (forced, True)
    assert other.key == setting.partition("=")[0] and f"[forced by {other.key}]" in other.text()


def test_the_first_surface_of_a_room_is_around_the_cameras(demo):
    for settings in ((), (WITHOUT,)):
        room, around = plan_of(from_within(demo), *settings), plan_of(demo, *settings)
        assert room.is_interior and room.radius == 0.9
        assert not around.is_interior and around.radius < 0.6


def test_the_table_names_what_a_forced_key_takes_away_and_when_losses_count(demo):
    def row(name, scene, *settings, before=UNSWEPT):
        made = load_config(FAST, "demo", settings)
        plan = decide(made.model, made.train, measured(scene), before)
        weights = weights_of(LOSSES, (made.model.type,), made.train, plan)
        return dict(with_table(plan, made.model, made.train, weights, flat(made)).rows)[name]

    noise = on_noise(with_points(replace(demo, masks=None)))
    from_depth = EarlierPlan(start=Decision(DEPTH_MAPS), step=1000)
    assert row("points", noise, before=from_depth).startswith("of the depth maps first, then given")
    assert row("points", noise, "train.points_weight=0", before=from_depth) == "none [forced by train.points_weight]"
    assert "forced by train.mask_weight" in row("masks", noise, WITHOUT)
    assert "with masks none are triangulated" in row("points", demo) and "[" not in row("points", demo)
    losses = row("losses", noise, "train.patches_weight=0.5", "train.patches_from=0.5", "train.end_iter=1000")
    assert "patches 0.5: from step 500 on [forced by train.patches_weight]" in losses and "color: fixed]" in losses
    assert "curvature 0.002: falls to 0 at the end [train.curvature_weight]" in losses
    assert "patches 0.2: masks already bound the surface" in row("losses", demo)
    assert "inv_s at most 571" in row("schedules", demo)
    assert "model.open" not in row("samples", demo) and "model.open.samples" in row("samples", noise)


def test_a_resume_keeps_what_the_training_began_with_and_refuses_another_value(demo):
    before = replace(UNSWEPT, background=plan_of(on_noise(demo), WITHOUT).background)
    assert plan_of(demo, WITHOUT, before=before).background.value == "contracted"
    with pytest.raises(UserError, match="model.plan.background = plain: the checkpoint was trained with contracted"):
        plan_of(demo, WITHOUT, "model.plan.background=plain", before=before)


def test_a_checkpoint_that_does_not_tell_has_a_grid_with_creases(demo):
    state = plan_of(demo).state()
    del state["smooth"]
    before = replace(UNSWEPT, smooth=plan_from_state(state).smooth)
    assert plan_of(demo, before=before).smooth.value == 0 != plan_of(demo).smooth.value
    with pytest.raises(UserError, match="model.sdf_grid.smooth = 1: the checkpoint was trained with 0"):
        plan_of(demo, "model.sdf_grid.smooth=1", before=before)


@pytest.mark.parametrize("smooth", [0, 1])
def test_the_grid_of_a_model_is_as_smooth_as_its_plan(demo, smooth):
    made = load_config(FAST, "demo", ["model.sdf_grid.smooth=2"])
    plan = replace(decide(made.model, made.train, measured(demo), UNSWEPT), smooth=Decision(smooth))
    assert build_model(made.model, made.train, np.random.default_rng(0), plan).fields.sdf.sizes.smooth == smooth


def test_a_saved_plan_is_read_back_equal_and_a_damaged_one_is_a_sentence(demo):
    plan = replace(plan_of(demo), rows=[["masks", "given"]], unused=["model.open"])
    assert plan_from_state(plan.state()) == plan
    with pytest.raises(StateError, match="the plan in its state is invalid"):
        check_state({"plan": {"masks": {"colour": "red"}}})


@pytest.mark.slow
def test_a_training_prints_its_plan_and_the_keys_without_effect(tmp_path, capsys):
    write_scene(tmp_path / "scene", n_views=8)
    settings = (*OPEN, *SHORT, f"dataset.data_dir={tmp_path}/scene", 'dataset.test_dir=""', "train.mask_weight=0.5")
    assert run_conf(CONF, tmp_path / "exp", "--case", "x", settings=settings) == 0
    out = capsys.readouterr().out
    saved_plan = plan_from_state(saved(tmp_path / "exp", 8).state["plan"])
    assert len(saved_plan.rows) == 10 and all(line in out for line in saved_plan.lines())
    assert "keys without effect here: model.open, model.density_grid" in out
    assert "Training plan" in (tmp_path / "exp/report.html").read_text()


def test_keys_of_the_version_before_are_read_once_each_with_the_key_of_today(tmp_path):
    old = load_config(
        FAST, "x", ["model.background.cells=32", "model.packed.prune_from=0.4", "model.patches.weight=0.3"]
    )
    assert (old.model.open.cells, old.model.inside.prune_from, old.train.patches_weight) == (32, 0.4, 0.3)
    assert old.outdated["model.background.cells"] == "model.open.cells" and len(old.outdated) == 3
    assert load_config(FAST, "x").outdated == {}
    moved = load_config(FAST, "x", ["model.packed.free_weight=3", "model.photographs.exposure_weight=0.2"]).train
    assert (moved.free_weight, moved.exposure_weight) == (3, 0.2)
    for inside, without, patches in ((0.0, 0.5, "auto"), (0.5, 0.5, 0.5)):
        found = load_config(
            FAST, "x", [f"model.inside.patches_weight={inside}", f"model.open.patches_weight={without}"]
        )
        assert found.train.patches_weight == patches
    tree = {"model": {"background": {"bias": 0.3}, "sdf_grid": {"bias": 0.5}, "photographs": {"exposure": True}}}
    tree["model"]["photographs"]["exposure_from"] = 0.2
    migrate(tree)  # defaults of that version give way to those of today
    assert tree == {"model": {"sdf_grid": {}, "photographs": {"exposure": "auto"}}}


def test_keys_that_are_constants_today_are_named_and_not_read():
    conf = ROOT / "confs/gaussians.conf"
    old = load_config(conf, "x", ["model.gaussians.densify=adaptive", "model.gaussians.noise=1"])
    assert set(old.outdated) == {"model.gaussians.densify", "model.gaussians.noise"}
    assert set(old.outdated.values()) == {"no longer used"} and old == load_config(conf, "x")
