"""The multiresolution grid and the network behind it in float64 NumPy, written from the paper (arXiv 2201.05989)."""

import itertools

import numpy as np

PRIMES = (1, 2654435761, 805459861)
BETA = 100.0


def row(cell, resolution, entries):
    """The row of a corner with whole coordinates `cell` [.., 3] in its level."""
    cell = cell.astype(np.uint64)
    if (resolution + 1) ** 3 <= entries:
        return cell @ np.array([1, resolution + 1, (resolution + 1) ** 2], np.uint64)
    hashed = np.zeros(cell.shape[:-1], np.uint64)
    for axis, prime in enumerate(PRIMES):
        hashed ^= cell[..., axis] * np.uint64(prime) & np.uint64(2**32 - 1)
    return hashed % np.uint64(entries)


def encode(points, table, sizes):
    """Features [P, 2 L] and their slopes [P, 2 L, 3]; zero in the levels that are not active."""
    count = len(points)
    features, slopes = np.zeros((count, 2 * sizes.levels)), np.zeros((count, 2 * sizes.levels, 3))
    start = 0
    for level, (resolution, entries) in enumerate(zip(sizes.resolutions, sizes.entries, strict=True)):
        columns = slice(2 * level, 2 * level + 2)
        place = (np.clip(points, -1, 1) + 1) / 2 * resolution
        lowest = np.minimum(np.floor(place), resolution - 1)
        for corner in itertools.product((0, 1), repeat=3) if level < sizes.active else ():
            share = np.where(corner, place - lowest, 1 - (place - lowest))
            value = table[start + row(lowest + corner, resolution, entries).astype(int)]
            features[:, columns] += share.prod(axis=1)[:, None] * value
            for axis in range(3):
                rise = np.where(np.abs(points[:, axis]) <= 1, resolution / 2 * (2 * corner[axis] - 1), 0.0)
                others = np.delete(share, axis, axis=1).prod(axis=1)
                slopes[:, columns, axis] += (rise * others)[:, None] * value
        start += entries
    return features, slopes


def softplus(x):
    return np.logaddexp(0, BETA * x) / BETA


def sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


def field(points, table, layers, sizes):
    """Outputs [P, O] of the network on (point, features of all levels), and the gradient of the first one [P, 3]."""
    features, slopes = encode(points, table, sizes)
    inputs = np.concatenate([points, features], axis=1)
    jacobian = np.concatenate([np.broadcast_to(np.eye(3), (len(points), 3, 3)), slopes], axis=1)
    for index, (matrix, bias) in enumerate(layers):
        if index:
            jacobian = sigmoid(BETA * inputs)[:, :, None] * jacobian
            inputs = softplus(inputs)
        inputs, jacobian = inputs @ matrix.T + bias, np.einsum("oi,pia->poa", matrix, jacobian)
    return inputs, jacobian[:, 0]
