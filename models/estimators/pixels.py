"""Rays of random pixels of one image, on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.rays import Rays
from data.scenes.sampler import PixelSampler
from data.scenes.scene import Scene
from models.estimators.base import Estimator
from models.machine.backend import jt
from models.structs import Var


@dataclass(frozen=True)
class RayVars:
    """`Rays` on the device."""

    origins: Var  # [R, 3]
    directions: Var  # [R, 3]
    near: Var  # [R, 1]
    far: Var  # [R, 1]


def upload(rays: Rays) -> RayVars:
    """Copy the rays to the device once."""
    return RayVars(*(jt.array(value) for value in (rays.origins, rays.directions, rays.near, rays.far)))


class PixelEstimator(Estimator):
    """An estimator of dense samples; a batch contains random pixels of one image, and the images are used in turn."""

    is_dense = True

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PixelSampler:
        """A sampler of random pixels of one image at a time."""
        return PixelSampler(scene, batch_size, generator)
