"""Rays of random pixels of one image, on the device."""

from __future__ import annotations

import numpy as np

from data.rays import Rays
from data.scenes.sampler import PixelSampler
from data.scenes.scene import Scene
from models.estimators.base import Estimator
from models.machine.backend import jt


def upload(rays: Rays) -> Rays:
    """The rays with Vars, copied to the device once."""
    return Rays(*(jt.array(value) for value in (rays.origins, rays.directions, rays.near, rays.far)))


class PixelEstimator(Estimator):
    """An estimator of dense samples; a batch contains random pixels of one image, and the images are used in turn."""

    is_dense = True

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PixelSampler:
        """A sampler of random pixels of one image at a time."""
        return PixelSampler(scene, batch_size, generator)
