"""The base classes of estimators: without state, schedule or background; and of dense samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data.rays import Rays
from data.scenes.sampler import PixelSampler
from data.scenes.scene import Posed, Scene
from models.machine.backend import jt
from models.structs import Noise


class Estimator:
    """Determines the sample positions along rays. A batch has R entries."""

    is_dense = False  # whether all rays have the same number of samples

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks of the background, by their names in checkpoints."""
        return {}

    def see(self, views: Posed) -> None:
        """Take the cameras of a scene, all that the results of a trained model need of it."""
        del views

    def fit(self, scene: Scene) -> None:
        """Initialise a training from a scene; called once, before `sampler`."""
        self.see(scene)

    def begin(self) -> None:
        """Start a new training; called once, after `sampler`, unless a checkpoint is resumed."""

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> Any:
        """Batches of the scene passed to `fit`."""
        raise NotImplementedError

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """The jitter of a batch; None without drawing numbers if there is none, or if batches contain it."""
        return None

    def precompute(self, batch: Any, *how: Any) -> Any:
        """What is computed once per chunk, without gradients, and passed to `sample`; None if there is nothing."""
        del batch, how

    def before_step(self, step: int) -> None:
        """Update the schedule; called before the batch of a step is drawn."""
        del step

    def after_collapse(self, step: int) -> str:
        """Postpone the likely cause of a collapse until this step; returns the end of a sentence about it, or ""."""
        del step
        return ""

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray | None:
        """The background colour [3] of rays; None for black."""
        return background_rgb

    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays that a resume needs."""
        return {}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        if buffers:
            raise ValueError(f"{next(iter(buffers))} does not belong to this method")


def upload(rays: Rays) -> Rays:
    """The rays with Vars, copied to the device once."""
    return Rays(*(jt.array(value) for value in (rays.origins, rays.directions, rays.near, rays.far)))


class PixelEstimator(Estimator):
    """An estimator of dense samples; a batch contains random pixels of one image, and the images are used in turn."""

    is_dense = True

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PixelSampler:
        """A sampler of random pixels of one image at a time."""
        return PixelSampler(scene, batch_size, generator)
