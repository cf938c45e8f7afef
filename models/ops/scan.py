"""Scans and counts along the last axis.

Jittor's own scans are not used (`tests/test_architecture.py`). Its `cumsum` of rows calls a block-wide CUDA scan in a
loop that some threads of the block have left, which is undefined (`extern/cuda/cub/ops/cub_cumsum_op.cc`). Its
`cumprod` is exp(cumsum(log x)): NaN for a zero factor, in value or gradient.
"""

from __future__ import annotations

from models.machine.backend import jt
from models.structs import Var


def exclusive_cumprod(factors: Var) -> Var:
    """y_i = prod_{j<i} x_j, [R, N] -> [R, N], y_0 = 1, by doubling (Hillis and Steele 1986): log2 N products.

    Exact for factors of any sign and for zeros; differentiable to any order, with no division.
    """
    count = factors.shape[1]
    product = jt.concat([jt.ones_like(factors[:, :1]), factors[:, :-1]], dim=1)
    step = 1
    while step < count:
        product = jt.concat([product[:, :step], product[:, step:] * product[:, :-step]], dim=1)
        step *= 2
    return product


def count_up_to(ascending: Var, values: Var) -> Var:
    """The number of entries of a row that are at most each value: [R, N], [R, K] -> [R, K] int32.

    Jittor's `searchsorted` calls Python during compilation, see `elementwise.is_finite`.
    """
    return (ascending.unsqueeze(1) <= values.unsqueeze(2)).int32().sum(2)
