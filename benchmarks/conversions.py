"""Arrays of every type, shape and layout to Jittor and back, in threads, with the values compared; prints the count.

    PYTHONMALLOC=debug LD_PRELOAD=libc_malloc_debug.so.0 MALLOC_CHECK_=3 MALLOC_PERTURB_=165 \\
        python -m benchmarks.conversions 60000

A status other than 0 means a wrong value or, with these variables, memory that was damaged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from models.machine import backend
from models.machine.jittor_import import select

TYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
SHAPES = ((), (1,), (7,), (5, 3), (2, 3, 4, 5), (33, 129), (2,) * 8)
THREADS = 4


def layouts(values: np.ndarray) -> Iterator[np.ndarray]:
    """The array, and views of other strides, alignment and access with the same type."""
    yield values
    yield np.asfortranarray(values)
    yield values.T
    if values.ndim:
        yield values[::-1]
        yield np.repeat(values, 2, axis=0)[::2]
        yield np.broadcast_to(values[:1], values.shape)
    shifted = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    shifted[...] = values
    shifted.flags.writeable = False
    yield shifted


def converted(seed: int, count: int) -> int:
    """Convert at least `count` arrays and compare; returns their number. Raises ValueError for a wrong value."""
    rng, done = np.random.default_rng(seed), 0
    while done < count:
        for name in TYPES:
            values = np.asarray(rng.integers(0, 2 if name == "bool" else 100, SHAPES[done % len(SHAPES)])).astype(name)
            for given in layouts(values):
                var = backend.jt.array(given)
                for result in (var.numpy(), np.array(var.data)):
                    if not np.array_equal(result.reshape(given.shape).astype(float), given.astype(float)):
                        raise ValueError(f"{name} {given.shape} {given.strides}: {result} instead of {given}")
                done += 1
    return done


def main() -> None:
    """Convert the given number of arrays, in threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    count = parser.parse_args().count
    select("cpu")
    backend.device_info()
    with ThreadPoolExecutor(THREADS) as pool:
        done = sum(pool.map(converted, range(THREADS), [count // THREADS] * THREADS))
    print(f"{done} arrays of {len(TYPES)} types, Python {sys.version.split()[0]}, NumPy {np.__version__}: all equal")


if __name__ == "__main__":
    main()
