"""The scene of a conf, and that of a trained model, with its photographs or without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property

import numpy as np

from data.prepare.load import load_scene, load_views
from data.scenes.config import DatasetConfig
from data.scenes.scene import Posed, Scene
from models.checkpoints.ours import Checkpoint
from models.checkpoints.same_scene import FRAME_KEY, began_with, require_same_frame, require_same_masks
from models.methods.conf import ExperimentConfig
from models.methods.registry import decide
from models.plan import DERIVED, PLAN_KEY, TrainingPlan, of_state, wants_masks

_KEPT: ContextVar[dict[tuple[DatasetConfig, float], Scene] | None] = ContextVar("kept", default=None)


def training_scene(conf: ExperimentConfig) -> Scene:
    """The training images; masks are derived from a backdrop only where a loss uses them."""
    derives = conf.dataset.masks_from_backdrop and wants_masks(conf.train)
    wanted = (replace(conf.dataset, masks_from_backdrop=derives), background(conf))
    kept = _KEPT.get()
    if kept is not None and wanted in kept:
        return kept[wanted]
    scene = load_scene(*wanted)
    if kept is not None and not kept:
        kept[wanted] = scene
    return scene


@contextmanager
def first_scene_kept() -> Iterator[None]:
    """In the body, `training_scene` decodes the first of its scenes once, and keeps it in memory.

    For several works on one scene in a process. Changes of its files in the meantime are not noticed.
    """
    token = _KEPT.set({} if _KEPT.get() is None else _KEPT.get())
    try:
        yield
    finally:
        _KEPT.reset(token)


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
            return of_state(self._checkpoint.state[PLAN_KEY])
        conf = self._conf
        return decide(conf.model, conf.train, self.scene, began_with(self._checkpoint))
