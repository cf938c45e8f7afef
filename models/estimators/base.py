"""The base class of estimators: without state, schedule or background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized

import numpy as np

from data.scenes.scene import Scene
from models.machine.backend import jt


class Estimator:
    """Determines the sample positions along rays. A batch has R entries."""

    is_dense = False  # whether all rays have equally many samples

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Those of the background, by their names in checkpoints."""
        return {}

    def fit(self, scene: Scene) -> None:
        """Initialise from a scene; called once, before `sampler`."""
        del scene

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Take on the networks of a checkpoint, network -> name -> shape, where no scene was fitted."""
        del shapes

    def share(self, batch: Sized, rank: int, size: int) -> slice | None:
        """The entries of one of `size` processes; None where there are fewer entries than processes."""
        entries = len(batch)
        return slice(entries * rank // size, entries * (rank + 1) // size) if entries >= size else None

    def precompute(self, *unused: object) -> object | None:
        """What of a chunk is computed once, without gradients, and handed to `sample`; None where nothing is."""
        del unused

    def before_step(self, step: int) -> None:
        """Follow the schedule; called before the batch of a step is drawn."""
        del step

    def after_collapse(self, step: int) -> str:
        """Put off until this step what may have led to a collapse; returns the end of a sentence about it, or ""."""
        del step
        return ""

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray | None:
        """The colour [3] of rays that nothing absorbs; None for black."""
        return background_rgb

    def buffers(self) -> dict[str, np.ndarray]:
        """Arrays that a resume needs."""
        return {}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError for others."""
        if buffers:
            raise ValueError(f"{next(iter(buffers))} does not belong to this method")
