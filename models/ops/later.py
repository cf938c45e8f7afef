"""Numbers that the host reads later: waiting for them does not wait for what the device was given after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import device_info, jt
from models.machine.memory import Pinned
from models.ops.source import Source
from models.structs import Var

_free: list[Pinned] = []


@dataclass(frozen=True)
class HostCopy:
    """Where a copy goes. Addresses are below 2^53, and so exact as float64."""

    host: np.float64
    event: np.float64
    bytes: int


SOURCE = Source("later.h", (HostCopy,))


class Later:
    """The values of a small Var, at most `pinned.BYTES`, on their way to the host."""

    def __init__(self, value: Var) -> None:
        """Start the computation of `value` and, on a GPU, its copy to the host."""
        jt.sync([value])
        self._value, self._dtype = value, np.dtype(str(value.dtype))
        self._pinned: Pinned | None = None
        if device_info().name == "cuda":
            self._pinned = _free.pop() if _free else Pinned()
            addresses = (np.float64(self._pinned.address), np.float64(self._pinned.event))
            layout = HostCopy(*addresses, value.numel() * self._dtype.itemsize)
            jt.sync(SOURCE.call("copy_later", layout, [((1,), "int32")], [value]))

    def read(self) -> np.ndarray:
        """The values; waits until the device has computed them."""
        pinned, self._pinned = self._pinned, None
        if pinned is None:
            return self._value.numpy()
        found = pinned.read(tuple(self._value.shape), self._dtype)
        _free.append(pinned)
        return found
