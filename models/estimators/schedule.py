"""The schedule of packed samples: step size, grid levels and pruning as functions of the training step."""

from __future__ import annotations

from dataclasses import dataclass

from models.estimators.conf import SamplesConfig


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
