"""What a training plan depends on, measured in a scene."""

from __future__ import annotations

import os
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from data.io.clock import phase, seconds_left, slowdown
from data.parsed_scene import training_points
from data.prepare.fused_depth import FusedDepth, fused_depth
from data.prepare.inspection.checks import exposure_spread
from data.scenes.backdrop import backdrop_colours, shows_outside_masks
from data.scenes.scene import Scene, shares_within
from data.scenes.sparse import well_supported
from models.plan import Measurements

SECONDS = 0.4  # of one core per depth map, about
FEWEST_MAPS = 24
_depths: WeakKeyDictionary[Scene, FusedDepth | None] = WeakKeyDictionary()  # for all plans that a command makes


def measured(scene: Scene) -> Measurements:
    """The measurements of a scene, each taken when a decision needs it."""
    points = scene.points
    return Measurements(
        has_masks=scene.masks is not None,
        backdrop=scene.backdrop,
        points=None if points is None else len(points.xyz),
        are_points_derived=points is not None and points.are_derived,
        points_in_region=lambda: 0 if points is None else _count_in_cube(well_supported(training_points(points))),
        exposure_spread=partial(exposure_spread, scene),
        cameras_within=partial(shares_within, scene),
        border_colours=partial(backdrop_colours, scene.images),
        shows_outside_masks=partial(shows_outside_masks, scene),
        depth=partial(fused_depth_in_time, scene),
    )


def _count_in_cube(xyz: np.ndarray) -> int:
    """The number of points [N, 3] in the cube around the region."""
    return int((np.abs(xyz).max(axis=1, initial=0) < 1).sum())


@phase("depth maps")
def fused_depth_in_time(scene: Scene, views: int) -> FusedDepth | None:
    """The depth maps of at most so many images, fused; 0: of as many as the time until `ends_at` allows."""
    if scene not in _depths:
        fitting = seconds_left() * len(os.sched_getaffinity(0)) / (SECONDS * slowdown())
        _depths[scene] = fused_depth(scene, views or int(min(max(fitting, FEWEST_MAPS), scene.n_views)))
    return _depths[scene]
