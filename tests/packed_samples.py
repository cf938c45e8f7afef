"""The samples of a packed batch, read to the host, and samples from arrays."""

from types import SimpleNamespace

import numpy as np

from models.machine.backend import jt
from models.ops.march import PackedSamples


def on_host(batch):
    """The arrays of the samples of the region, and those of the background as `far`."""
    near, far = (
        None if one is None else SimpleNamespace(**{name: value.numpy() for name, value in vars(one).items()})
        for one in (batch.placed.near, batch.placed.far)
    )
    near.far = far
    return near


def samples_of(offsets, points, directions, depths=None):
    """Packed samples from arrays; those beyond the last offset are of no ray."""
    rays = np.zeros(len(points), np.int32)
    rays[: offsets[-1]] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    depths = np.zeros((len(points), 1)) if depths is None else np.reshape(depths, (-1, 1))
    arrays = (np.int32(offsets), np.int32([len(offsets) - 1]), rays, depths.astype(np.float32), points, directions)
    return PackedSamples(*map(jt.array, arrays))
