"""The scene of a conf, that of a trained model, with its photographs or without them, and whether it is the one that a
checkpoint was trained on: the same data, region of interest, and masks or none; and what a training plan depends on,
measured in a scene.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

import cv2
import numpy as np

from data.errors import listed
from data.io.clock import phase, seconds_left, slowdown
from data.parsed_scene import training_points
from data.pixels import to_float
from data.prepare.fused_depth import FusedDepth, fused_depth
from data.prepare.inspection.checks import exposure_spread
from data.prepare.load import load_scene, load_views
from data.scenes.backdrop import backdrop_colours, shows_outside_masks
from data.scenes.config import DatasetConfig
from data.scenes.scene import Posed, Scene, shares_within
from data.scenes.sparse import well_supported
from models.checkpoints.ours import DATA_KEY, FRAME_KEY, SCENE_TABLES
from models.conf import ExperimentConfig
from models.config.blocks import EXPOSURE
from models.methods.registry import decide
from models.plan import (
    DEPTH_MAPS,
    DERIVED,
    GIVEN,
    NONE,
    PLAN_KEY,
    SPHERE,
    Decision,
    EarlierPlan,
    Measurements,
    TrainingPlan,
    decide_masks,
    plan_from_state,
    wants_masks,
)
from models.training.checkpoint import Checkpoint, CheckpointError

SECONDS = 0.4  # of one core per depth map, about
FEWEST_MAPS = 24
_DEPTHS: WeakKeyDictionary[Scene, FusedDepth | None] = WeakKeyDictionary()  # for all plans that a command makes


def measured(scene: Scene) -> Measurements:
    """The measurements of a scene, each taken when a decision needs it."""
    points = scene.points

    def points_in_region() -> int:  # in the cube around it
        xyz = np.empty((0, 3)) if points is None else well_supported(training_points(points))
        return int((np.abs(xyz).max(axis=1, initial=0) < 1).sum())

    return Measurements(
        has_masks=scene.masks is not None,
        backdrop=scene.backdrop,
        points=None if points is None else len(points.xyz),
        are_points_derived=points is not None and points.are_derived,
        points_in_region=points_in_region,
        exposure_spread=partial(exposure_spread, scene),
        cameras_within=partial(shares_within, scene),
        border_colours=partial(backdrop_colours, scene.images),
        shows_outside_masks=partial(shows_outside_masks, scene),
        depth=partial(fused_depth_in_time, scene),
    )


@phase("depth maps")
def fused_depth_in_time(scene: Scene, views: int) -> FusedDepth | None:
    """The depth maps of at most so many images, fused; 0: of as many as the time until `ends_at` allows."""
    if scene not in _DEPTHS:
        fitting = seconds_left() * len(os.sched_getaffinity(0)) / (SECONDS * slowdown())
        _DEPTHS[scene] = fused_depth(scene, views or int(min(max(fitting, FEWEST_MAPS), scene.n_views)))
    return _DEPTHS[scene]


# Scenes by dataset and background, within `scene_cache`.
_CACHE: ContextVar[dict[tuple[DatasetConfig, float], Scene] | None] = ContextVar("scene_cache", default=None)


def training_scene(conf: ExperimentConfig) -> Scene:
    """The training images; masks are derived from a backdrop only where a loss uses them."""
    derives = conf.dataset.masks_from_backdrop and wants_masks(conf.train)
    key, cache = (replace(conf.dataset, masks_from_backdrop=derives), background(conf)), _CACHE.get()
    if cache is not None and key in cache:
        return cache[key]
    scene = load_scene(*key)
    if cache is not None and not cache:
        cache[key] = scene
    return scene


@contextmanager
def scene_cache() -> Iterator[None]:
    """In the body, `training_scene` decodes the first of its scenes once, and keeps it in memory.

    For several works on one scene in a process. Changes of its files in the meantime are not noticed.
    """
    token = _CACHE.set({} if _CACHE.get() is None else _CACHE.get())
    try:
        yield
    finally:
        _CACHE.reset(token)


def background(conf: ExperimentConfig) -> float:
    """The grey value of the background: 1 for white, else 0."""
    return 1.0 if conf.train.use_white_bkgd else 0.0


class SceneOfModel:
    """The scene of a trained model, loaded at the first use: its cameras alone, or its photographs, too."""

    def __init__(self, conf: ExperimentConfig, checkpoint: Checkpoint) -> None:
        self._conf, self._checkpoint = conf, checkpoint

    @cached_property
    def scene(self) -> Scene:
        """With photographs; raises UserError if it is not the one that the model was trained on."""
        scene = training_scene(self._conf)
        require_same_frame(self._checkpoint, scene)
        require_same_masks(self._checkpoint, scene, self._conf)
        return scene

    @cached_property
    def views(self) -> Posed:
        """The cameras, if possible without decoding photographs; raises UserError as `scene`."""
        state = self._checkpoint.state
        needs_pixels = FRAME_KEY not in state or PLAN_KEY not in state or self.plan.masks.value == DERIVED
        if needs_pixels or "scene" in vars(self):
            return self.scene
        views = load_views(self._conf.dataset, np.array(state[FRAME_KEY], np.float64))
        if views is None:
            return self.scene
        require_same_frame(self._checkpoint, views)
        return views

    @cached_property
    def plan(self) -> TrainingPlan:
        """The plan of the checkpoint; decided again for checkpoints without one."""
        if PLAN_KEY in self._checkpoint.state:
            return plan_from_state(self._checkpoint.state[PLAN_KEY])
        conf, earlier = self._conf, replace(earlier_plan(self._checkpoint), step=self._conf.train.end_iter)
        return decide(conf.model, conf.train, measured(self.scene), earlier)


# Largest differences of the numbers of `_data` between machines and sizes: levels of 255; radii, parts of an axis and
# of the width; radii.
TOLERANCES = dict(zip(SCENE_TABLES, (6.0, 6.0, 0.02, 0.1), strict=True))
ACCEPT = "continue with the changed ones by --checkpoint FILE --overwrite instead of --is_continue"
MEAN_PARTS = 3  # of an image along each side, of which the mean colour is taken
MEAN_SAMPLES = 256  # pixels along each side that it is taken from, at least
HULL, BACKDROP = "hull", "backdrop"  # buffers of occupancy sampling: its region, and the backdrop of derived masks
FRAME_TOLERANCE = 1e-3  # of the sphere's radius; smaller differences are invisible
BACKGROUND_NETWORK = "background_density"  # network of occupancy sampling without masks
MASK_WORDS = {NONE: "without masks", GIVEN: "with masks", DERIVED: "with masks derived from the backdrop"}


def scene_state(scene: Scene) -> dict[str, Any]:
    """The entries of a checkpoint's state for `require_same_frame` and `require_same_data`."""
    return {FRAME_KEY: scene.scene_to_world.tolist(), DATA_KEY: _data(scene)}


def _data(scene: Scene) -> dict[str, dict[str, list[float]]]:
    """Numbers of each photograph, mask and camera by name, and of the points, by which changes are noticed."""
    names, points = scene.image_names, scene.points
    masks = scene.masks or [None] * len(names)
    views = list(zip(names, scene.images, masks, strict=True))
    tables = {
        "photographs": {name: _means(image, mask) for name, image, mask in views},
        "masks": {name: _means(mask) for name, _, mask in views if mask is not None},
        "cameras": _cameras(scene),
        "points": {} if points is None else {"all": np.concatenate([points.xyz.mean(axis=0), points.xyz.std(axis=0)])},
    }
    return {kind: {name: np.round(row, 3).tolist() for name, row in rows.items()} for kind, rows in tables.items()}


def _cameras(scene: Scene) -> dict[str, np.ndarray]:
    """The numbers of the camera of each photograph by name."""
    sides = np.array([image.shape[1] for image in scene.images])[:, None, None]
    cameras = np.concatenate([scene.c2w[:, :3], scene.intrinsics / sides], axis=2)
    return {name: camera.ravel() for name, camera in zip(scene.image_names, cameras, strict=True)}


def _means(image: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """The mean levels, of 255, of MEAN_PARTS x MEAN_PARTS parts of an image in each channel; black outside `mask`.

    What is behind an alpha mask is the conf's.
    """
    step = max(1, min(image.shape[:2]) // MEAN_SAMPLES)
    levels = 255.0 * to_float(image[::step, ::step])
    if mask is not None:
        levels = levels * to_float(mask[::step, ::step])[..., None]
    return cv2.resize(levels, (MEAN_PARTS, MEAN_PARTS), interpolation=cv2.INTER_AREA).ravel()


def require_same_data(checkpoint: Checkpoint, scene: Scene) -> None:
    """Raises CheckpointError if photographs, masks, cameras or points are not those trained on; there may be fewer.

    Checkpoints of the published code, and those before this check, do not say.
    """
    trained, now = checkpoint.state.get(DATA_KEY, {}), _data(scene)
    if new := sorted(now["cameras"].keys() - trained.get("cameras", now["cameras"]).keys()):
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} was not trained on {listed(new)} of {scene.name}: restore the "
            f"names of its photographs and dataset.test_every, test_views and validation_views, or {ACCEPT}"
        )
    if bool(trained.get("masks")) != bool(now["masks"]):
        trained = {kind: rows for kind, rows in trained.items() if kind != "photographs"}  # which the masks cover
    changed = [kind for kind, rows in trained.items() if not _is_same(rows, now[kind], TOLERANCES[kind])]
    if changed:
        raise CheckpointError(
            f"the {' and '.join(changed)} of {scene.name} changed since the checkpoint of step {checkpoint.step}: "
            f"restore them, or {ACCEPT}"
        )


def for_photographs(checkpoint: Checkpoint, scene: Scene) -> Checkpoint:
    """The checkpoint for the photographs of a scene, of which some were added or removed since.

    Those whose cameras were trained on keep their exposure, others have none yet; batches are drawn anew.
    """
    trained = np.array(list(checkpoint.state.get(DATA_KEY, {}).get("cameras", {}).values()))
    now = np.array(list(_cameras(scene).values()))
    if len(trained) == 0:
        return checkpoint
    apart = np.abs(now[:, None] - trained).max(axis=2)
    rows = np.where(apart.min(axis=1) <= TOLERANCES["cameras"], apart.argmin(axis=1), -1)
    if np.array_equal(rows, np.arange(len(trained))):
        return checkpoint

    def chosen(table: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
        if name not in table:
            return table
        return table | {name: np.where(rows[:, None] >= 0, table[name][rows], 0).astype(table[name].dtype)}

    networks = [
        tensors | {EXPOSURE: chosen(tensors[EXPOSURE], "affine")} if EXPOSURE in tensors else tensors
        for tensors in (checkpoint.tensors, checkpoint.ema)
    ]
    moments = {kind: chosen(table, f"{EXPOSURE}.affine") for kind, table in checkpoint.moments.items()}
    state = {key: value for key, value in checkpoint.state.items() if key not in ("sampler", "jitter")}
    return replace(checkpoint, tensors=networks[0], ema=networks[1], moments=moments, state=state)


def require_not_trained_on(checkpoint: Checkpoint, test: Scene) -> None:
    """Raises CheckpointError if a test photograph was trained on: name and camera are those of a training photograph.

    Of other folders, photographs with the same names are others.
    """
    trained, now = checkpoint.state.get(DATA_KEY, {}).get("cameras", {}), _cameras(test)
    names = [name for name in now if name in trained]
    if seen := [name for name in names if _is_same({name: trained[name]}, now, TOLERANCES["cameras"])]:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} was trained on {listed(seen)}, test photographs now: give "
            "dataset.test_every, test_views, validation_views and test_dir as in its training"
        )


def _is_same(trained: Mapping[str, Any], now: Mapping[str, Any], tolerance: float) -> bool:
    """Whether the numbers of all names in both differ by at most `tolerance`."""
    pairs = [(trained[name], now[name]) for name in trained.keys() & now.keys()]
    return all(len(a) == len(b) and np.abs(np.subtract(a, b)).max(initial=0.0) <= tolerance for a, b in pairs)


def require_same_frame(checkpoint: Checkpoint, scene: Posed) -> None:
    """Raises CheckpointError if the networks were trained with another region of interest.

    The region may change if it is estimated from other images. Checkpoints of the published code do not store it.
    """
    trained = np.array(checkpoint.state.get(FRAME_KEY, scene.scene_to_world), dtype=np.float64)
    radius = np.linalg.norm(trained[:3, 0])
    if np.abs(trained - scene.scene_to_world).max() > FRAME_TOLERANCE * radius:
        sphere = " ".join(f"{value:.9g}" for value in (*trained[:3, 3], radius))
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} was trained with another region of interest than that of "
            f'{scene.name}; pass --roi "{sphere}", the one it was trained with, or train again with --overwrite if the '
            "scene was prepared again"
        )


def require_same_masks(checkpoint: Checkpoint, scene: Scene, conf: ExperimentConfig) -> None:
    """Raises CheckpointError if occupancy sampling used other masks than those of scene and conf.

    Masks bound the occupied cells, which checkpoints contain, and replace the background.
    """
    was, now = trained_masks(checkpoint), decide_masks(measured(scene), conf.train).value
    if HULL not in checkpoint.buffers or was in (None, now):
        return
    if DERIVED in (was, now):
        fix = f"pass --set dataset.masks_from_backdrop={was == DERIVED}"
    elif was == NONE:
        fix = "pass --set train.mask_weight=0"
    else:
        fix = "restore its masks" if scene.masks is None else "pass --set train.mask_weight= with that of its training"
    raise CheckpointError(
        f"the checkpoint of step {checkpoint.step} was trained {MASK_WORDS[was]}, and {scene.name} is now used "
        f"{MASK_WORDS[now]}; {fix}, or train again"
    )


def trained_masks(checkpoint: Checkpoint) -> str | None:
    """The masks of a training by occupancy sampling; None if its checkpoint, of an earlier version, does not tell."""
    if PLAN_KEY in checkpoint.state:
        return plan_from_state(checkpoint.state[PLAN_KEY]).masks.value
    if BACKDROP in checkpoint.buffers or BACKGROUND_NETWORK in checkpoint.tensors:
        return DERIVED if BACKDROP in checkpoint.buffers else NONE
    return GIVEN if "sdf_network_fine" in checkpoint.tensors else None


def earlier_plan(checkpoint: Checkpoint | None) -> EarlierPlan:
    """What a training that is resumed began with; for earlier versions, what its tensors tell."""
    if checkpoint is None:
        return EarlierPlan()
    if PLAN_KEY in checkpoint.state:
        plan = plan_from_state(checkpoint.state[PLAN_KEY])
        kept = (plan.region, plan.background, plan.start, plan.exposure, plan.smooth)
        return EarlierPlan(*kept, plan.depth_views, checkpoint.step)
    from_depth = checkpoint.buffers.get("starts_from_depth", [False])[0]
    start = Decision(DEPTH_MAPS if from_depth else SPHERE, "as in the checkpoint")
    exposure = Decision("exposure" in checkpoint.tensors, "as in the checkpoint")
    return EarlierPlan(start=start, exposure=exposure, smooth=Decision(0), step=checkpoint.step)
