"""Rays of random pixels of one image, on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.rays import PixelBatch, Rays
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
    """The rays, handed to the device once."""
    return RayVars(*(jt.array(value) for value in (rays.origins, rays.directions, rays.near, rays.far)))


class PixelEstimator(Estimator):
    """An estimator of dense samples, whose batches are random pixels of one image after the other."""

    is_dense = True

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PixelSampler:
        """Random pixels of one image after the other."""
        return PixelSampler(scene, batch_size, generator)

    def batch(self, arrays: Mapping[str, np.ndarray]) -> PixelBatch:
        """The batch that has these arrays; raises ValueError, KeyError or TypeError where it has others."""
        return PixelBatch.from_arrays(arrays)
