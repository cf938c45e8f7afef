"""The schedule of packed samples, and the pruning of their cells by it.

Step size, grid levels and pruning are functions of the training step. A pruning is tested by rays of pixels, which must
not lose the object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data.rays import Rays
from data.scenes.sampler import HostPixels
from data.scenes.scene import Scene
from models.estimators.conf import SamplesConfig
from models.estimators.occupancy import OccupancyGrid
from models.ops.march import EMPTY, SOLID
from models.structs import MASK_THRESHOLD

MOST_LOST = 0.02  # maximum fraction of the probe rays that may lose the object by pruning; above it the cells are kept
LARGE_CHANGE = 0.05  # of the share of occupied cells, from which a pruning is logged
PROBES = 2048  # random pixels; the rays of those inside the masks test whether pruning removes the object
OPEN_PROBES = 512  # the same with a background: rays of all pixels; their opacity takes a sixth of a step


@dataclass(frozen=True)
class SamplingSchedule:
    """What follows from the step alone."""

    conf: SamplesConfig
    end_iter: int
    prune_from: float  # fraction of end_iter before cells are pruned

    def step_size(self, step: int) -> float:
        """The distance of samples along a ray, working-frame units; it falls linearly."""
        conf = self.conf
        return conf.first_step + (conf.last_step - conf.first_step) * min(1.0, step / self.end_iter / conf.steps_until)

    def level_progress(self, step: int) -> float:
        """From 0, where the first levels of grids are active, to 1, from which on all are."""
        return step / self.end_iter / self.conf.levels_until

    def random_share(self, step: int) -> float:
        """The least fraction of samples that are random points; 0 until all levels are active."""
        return self.conf.anywhere if step / self.end_iter >= self.conf.levels_until else 0.0

    def updates_cells(self, step: int) -> bool:
        """Whether the cells are updated before this step."""
        return step > 0 and step % self.conf.prune_every == 0


class CellPruner:
    """Prunes the cells of a grid by a schedule; with masks, opens all of them if too many probe rays cross none."""

    def __init__(self, grid: OccupancyGrid, schedule: SamplingSchedule, uses_masks: bool) -> None:
        self.grid, self.schedule, self._uses_masks = grid, schedule, uses_masks
        self.postponed_to = 0  # no pruning before this step, after a collapse
        self.probes: Rays | None = None  # rays by which pruning is tested, the same in every run

    def draw_probes(self, scene: Scene, windows: np.ndarray, is_open: bool) -> None:
        """Draw the probe rays: those of mask pixels that cross the hull; with a background, those of all pixels."""
        count = OPEN_PROBES if is_open else PROBES
        pixels = HostPixels(scene, windows).pixels(np.random.default_rng(0), count, scene.n_views)
        self.probes = pixels.rays
        if not is_open and pixels.mask is not None:
            rays = pixels.rays.at(pixels.mask[:, 0] > MASK_THRESHOLD)
            self.probes = rays.at(self.grid.crosses(rays))

    @property
    def first_step(self) -> float:
        """The step at which pruning begins."""
        return max(self.schedule.prune_from * self.schedule.end_iter, self.postponed_to)

    def before_step(self, step: int, prune: Callable[[], None]) -> None:
        """Call `prune`, which updates the cells from the field, where the schedule says so.

        Before pruning begins, all cells are occupied: those of a finished shorter training that is continued were
        pruned with a coarser field, and no ray would reach the empty ones to change them.
        """
        if step < self.first_step:
            if not self.grid.is_open:
                self.grid.open()
        elif self.schedule.updates_cells(step):
            before = self.grid.occupied_share
            prune()
            if self._uses_masks and self.lost_share() > MOST_LOST:
                self.grid.open()
            if abs(self.grid.occupied_share - before) > LARGE_CHANGE:
                logging.getLogger(__name__).info("%s", self.account(step))

    def account(self, step: int) -> str:
        """A line for the log: how many cells are empty, and how many rays cross none that is occupied."""
        hull = self.grid.cells[self.grid.hull]
        empty, solid = (float((hull == state).mean()) for state in (EMPTY, SOLID))
        probes = 0 if self.probes is None else len(self.probes)
        return (
            f"step {step}: {empty:.0%} of the cells are empty, {solid:.0%} inside the object; "
            f"{round(self.lost_share() * probes)} of {probes} test rays cross none of the others"
        )

    def lost_share(self) -> float:
        """The fraction of the probe rays, which crossed the hull, that cross no occupied cell."""
        crosses = self.grid.crosses(self.probes) if self.probes else np.zeros(0)
        return 1.0 - float(crosses.mean()) if len(crosses) else 0.0
