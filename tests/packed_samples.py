"""The samples of a packed batch, read to the host, and batches of given samples."""

from types import SimpleNamespace

import numpy as np

from models.estimators.batch import PackedBatch, Placed
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


def batch_of(offsets, points, directions):
    """A batch of rays that have these samples."""
    rays, size = len(offsets) - 1, len(points)
    wide, narrow = np.zeros((rays, 3), np.float32), np.zeros((rays, 1), np.float32)
    others, sizes = np.zeros((1, 3), np.float32), np.int32([size, size, size, 0, 0])
    view, step = np.zeros(rays, np.int32), np.float32([0.1])
    placed = Placed(samples_of(offsets, points, directions), None)
    return PackedBatch(wide, wide, narrow, narrow, narrow, wide, view, others, step, sizes, place=lambda batch: placed)
