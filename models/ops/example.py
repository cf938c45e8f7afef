"""What an example of an operation is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.ops.kernel import Kernel
from models.structs import Var


@dataclass(frozen=True)
class Example:
    """An operation and arguments for it."""

    kernel: Kernel
    arguments: tuple[Any, ...]
    trained: tuple[Var, ...] = ()  # what its gradients are compared for
    compared: int | None = None  # so many of its outputs, from the first: several orders may be right; None for all


Maker = Callable[[np.random.Generator], Example]
