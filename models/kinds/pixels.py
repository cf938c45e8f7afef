"""What kinds share that are trained on random pixels: the batch on the device, and their part of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.rays import PixelBatch, Rays
from data.scenes.sampler import PixelSampler
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.kinds.protocol import PlainModel
from models.kinds.terms import binary_mask
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


class PixelModel(PlainModel):
    """A kind whose batches are random pixels of one photograph."""

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PixelSampler:
        """Random pixels of one photograph after the other."""
        return PixelSampler(scene, batch_size, generator)

    def batch(self, arrays: Mapping[str, np.ndarray]) -> PixelBatch:
        """The batch that has these arrays."""
        return PixelBatch.from_arrays(arrays)


def photograph(batch: PixelBatch, conf: TrainConfig) -> tuple[Var, Var]:
    """Colours [R, 3] and 0/1 mask [R, 1] that a batch is held to."""
    mask = None if batch.mask is None else jt.array(batch.mask)
    return jt.array(batch.rgb), binary_mask(mask, len(batch.rgb), conf)
