"""The type of an operation's example."""

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
    trained: tuple[Var, ...] = ()  # the arguments with compared gradients
    # number of outputs to compare, from the first, since several orders may be correct; None for all
    compared: int | None = None


Maker = Callable[[np.random.Generator], Example]
