"""Real spherical harmonics up to degree 3, in the order and with the signs of 3D Gaussian Splatting (arXiv 2308.04079).

For NumPy and Jittor arrays. N directions, K = (degree + 1)^2 functions. Does not import Jittor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_DEGREE = 3
CONSTANT = 0.28209479177387814  # the function of degree 0
SAMPLES = 64  # directions for the fit of a rotated function: four times as many as functions


def count_of(degree: int) -> int:
    """The number of functions up to a degree."""
    return (degree + 1) ** 2


def functions(degree: int, d: Any) -> list[Any]:
    """The functions at unit directions [N, 3], each [N, 1]."""
    x, y, z = d[:, 0:1], d[:, 1:2], d[:, 2:3]
    xx, yy, zz = x * x, y * y, z * z
    one = 0.4886025119029199
    basis = [x * 0.0 + CONSTANT, y * -one, z * one, x * -one]
    a, b, c = 1.0925484305920792, 0.31539156525252005, 0.5462742152960396
    basis += [x * y * a, y * z * -a, (zz * 2 - xx - yy) * b, x * z * -a, (xx - yy) * c]
    e, f, g = -0.5900435899266435, 2.890611442640554, -0.4570457994644658
    h, k = 0.3731763325901154, 1.445305721320277
    basis += [y * (xx * 3 - yy) * e, x * y * z * f, y * (zz * 4 - xx - yy) * g, z * (zz * 2 - xx * 3 - yy * 3) * h]
    basis += [x * (zz * 4 - xx - yy) * g, z * (xx - yy) * k, x * (xx - yy * 3) * e]
    return basis[: count_of(degree)]


def turning(degree: int, rotation: np.ndarray) -> np.ndarray:
    """[K, K]: maps coefficients c to those of the same colours in a frame rotated by `rotation` [3, 3].

    That is, sum_k Y_k(R d) c'_k = sum_k Y_k(d) c_k for every direction d. Degrees do not mix.
    """
    directions = np.random.default_rng(0).normal(size=(SAMPLES, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    before, after = (np.concatenate(functions(degree, d), axis=1) for d in (directions, directions @ rotation.T))
    return np.linalg.lstsq(after, before, rcond=None)[0]
