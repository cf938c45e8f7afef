"""Distribute the evaluation of a field over ranks: all ranks pass the same points, and each computes a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from models.machine.ranks.ranks import Ranks


def shared_out(ranks: Ranks, function: Callable[..., Any]) -> Callable[..., Any]:
    """A distributed version of a function that maps arrays with a row per point to an array or several of them.

    Every rank gets the values of all points.
    """

    def together(*arrays: np.ndarray) -> Any:
        if len(arrays[0]) < ranks.size:
            return function(*arrays)
        rows = ranks.part(len(arrays[0]))
        parts = ranks.everyones(lambda: function(*(array[rows] for array in arrays)))
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        return np.concatenate(parts)

    return together
