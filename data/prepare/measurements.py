"""What a training plan depends on, measured in the photographs of a scene."""

from __future__ import annotations

import os
from weakref import WeakKeyDictionary

import numpy as np

from data.io.clock import phase, seconds_left, slowdown
from data.parsed_scene import training_points
from data.prepare.fused_depth import FusedDepth, fused_depth
from data.prepare.inspection.checks import exposure_spread
from data.scenes.backdrop import backdrop_colours, shows_outside_masks
from data.scenes.scene import Scene, shares_within
from data.scenes.sparse import well_supported

SECONDS = 0.4  # of one core per depth map, about
FEWEST_MAPS = 24
_DEPTHS: WeakKeyDictionary[Scene, FusedDepth | None] = WeakKeyDictionary()  # for all plans that a command makes


class SceneMeasurements:
    """Implements `models.plan.Measurements`."""

    def __init__(self, scene: Scene) -> None:
        points = scene.points
        self._scene, self.has_masks, self.backdrop = scene, scene.masks is not None, scene.backdrop
        self.points = None if points is None else len(points.xyz)
        self.are_points_derived = points is not None and points.are_derived

    def points_in_region(self) -> int:
        """See `models.plan.Measurements`."""
        points = self._scene.points
        xyz = np.zeros((0, 3)) if points is None else well_supported(training_points(points))
        return int((np.abs(xyz).max(axis=1, initial=0) < 1).sum())

    def exposure_spread(self) -> float:
        """See `models.plan.Measurements`."""
        return exposure_spread(self._scene)

    def cameras_within(self, radius: float) -> tuple[float, float]:
        """See `models.plan.Measurements`."""
        return shares_within(self._scene, radius)

    def border_colours(self, tolerance: float) -> np.ndarray | None:
        """See `models.plan.Measurements`."""
        return backdrop_colours(self._scene.images, tolerance)

    def shows_outside_masks(self, colour: np.ndarray | None) -> bool:
        """See `models.plan.Measurements`."""
        return shows_outside_masks(self._scene, colour)

    @phase("depth maps")
    def depth(self, views: int = 0) -> FusedDepth | None:
        """See `models.plan.Measurements`; the time is that until `ends_at`."""
        if self._scene not in _DEPTHS:
            fitting = seconds_left() * len(os.sched_getaffinity(0)) / (SECONDS * slowdown())
            most = int(min(max(fitting, FEWEST_MAPS), self._scene.n_views))
            _DEPTHS[self._scene] = fused_depth(self._scene, views or most)
        return _DEPTHS[self._scene]
