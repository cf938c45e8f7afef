"""Matrices of a golden file that are drawn from a seed instead of stored: those of the released sizes weigh 5 MB.

Only bits of the generator and correctly rounded arithmetic enter, no library's functions: the same numbers everywhere.
Runs without this project, in the interpreter that has PyTorch too (benchmarks/golden.py).
"""

from __future__ import annotations

import zlib

import numpy as np

DRAWN = "drawn/"  # before the name of a matrix: [2, inputs], mean and spread of its columns


def drawn_matrix(name: str, rows: int, columns: np.ndarray, seed: int) -> np.ndarray:
    """[rows, inputs], float32: uniform in mean +- spread; `columns` holds mean and spread, [2, inputs]."""
    generator = np.random.RandomState(
        zlib.crc32(f"{seed} {name}".encode())
    )  # its stream is frozen, unlike default_rng's
    mean, spread = columns.astype(np.float64)
    return (mean + spread * (2.0 * generator.random_sample((rows, len(mean))) - 1.0)).astype(np.float32)


def drawn_weights(arrays: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The matrices `weights/<network>.<layer>.<leaf>` that a golden file describes; a layer's bias tells the rows."""
    found = {}
    for key in (key for key in arrays if key.startswith(DRAWN)):
        name = key[len(DRAWN) :]
        bias = arrays[f"weights/{name.rpartition('.')[0]}.bias"]
        found[f"weights/{name}"] = drawn_matrix(name, len(bias), arrays[key], seed)
    return found


def some_of(values: np.ndarray, count: int) -> np.ndarray:
    """`count` entries of an array, evenly spread over it in its order; all where it has no more."""
    flat = values.reshape(-1)
    return values if flat.size <= count else flat[np.linspace(0, flat.size - 1, count).astype(np.int64)]
