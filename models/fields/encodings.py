"""Positional encoding (NeRF, arXiv 2003.08934, eq. 4, with the input itself in front and no factor of pi).

gamma(x) = (x, sin x, cos x, sin 2x, cos 2x, ..., sin 2^(L-1) x, cos 2^(L-1) x), each block of the width of x.
The order is that of the published NeuS: https://github.com/Totoro97/NeuS/blob/6e0a230/models/embedder.py
"""

from __future__ import annotations

from models.backend import jt
from models.structs import Var


def positional_encoding(x: Var, frequencies: int) -> Var:
    """gamma(x): [P, D] -> [P, D (1 + 2 L)]; x itself where L = 0."""
    if frequencies == 0:
        return x
    parts = [x]
    for level in range(frequencies):
        angle = x * float(2**level)
        parts += [angle.sin(), angle.cos()]
    return jt.concat(parts, dim=1)


def positional_encoding_vjp(x: Var, cotangent: Var, frequencies: int) -> Var:
    """Transposed Jacobian of the encoding: (d gamma / d x)^T cotangent, [P, D (1 + 2 L)] -> [P, D].

    Made of ordinary operations, so that it can be differentiated again.
    """
    if frequencies == 0:
        return cotangent
    width = x.shape[1]
    total = cotangent[:, :width]
    for level in range(frequencies):
        scale, start = float(2**level), width * (1 + 2 * level)
        angle = x * scale
        into_sine = cotangent[:, start : start + width]
        into_cosine = cotangent[:, start + width : start + 2 * width]
        total = total + (angle.cos() * into_sine - angle.sin() * into_cosine) * scale
    return total
