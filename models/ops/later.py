"""Numbers that the host reads later: waiting for them does not wait for what the device was given after them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import numpy as np

from models.machine.backend import choice, device_info, jt
from models.ops.source import Source
from models.structs import Var


@dataclass(frozen=True)
class HostCopy:
    """Where a copy goes. Addresses are below 2^53, and so exact as float64."""

    host: np.float64
    event: np.float64
    bytes: int


SOURCE = Source("later.h", (HostCopy,))
PINNED_BYTES = 1024  # of one piece of pinned memory
NO_TIMING = 2  # cudaEventDisableTiming
_free: list[Pinned] = []


class Later:
    """The values of a small Var, at most `PINNED_BYTES`, on their way to the host."""

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
        values = pinned.read(tuple(self._value.shape), self._dtype)
        _free.append(pinned)
        return values


class Pinned:
    """PINNED_BYTES of pinned memory and an event, as addresses for CUDA sources; never freed, so reuse them."""

    def __init__(self) -> None:
        memory, event = ctypes.c_void_p(0), ctypes.c_void_p(0)
        _demand(_cudart().cudaHostAlloc(ctypes.byref(memory), ctypes.c_size_t(PINNED_BYTES), 0))
        _demand(_cudart().cudaEventCreateWithFlags(ctypes.byref(event), NO_TIMING))
        self.address, self.event = memory.value or 0, event.value or 0
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * PINNED_BYTES).from_address(self.address))

    def read(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The values of the last copy; waits for its event, and raises RuntimeError if the GPU has failed."""
        _demand(_cudart().cudaEventSynchronize(ctypes.c_void_p(self.event)))
        count = int(np.prod(shape))
        return self._bytes[: count * dtype.itemsize].view(dtype).reshape(shape).copy()


@cache
def _cudart() -> ctypes.CDLL:
    """The CUDA runtime that Jittor has loaded."""
    if choice.home is None:
        raise RuntimeError("no GPU is used")
    library = ctypes.CDLL(str(choice.home.folder / "lib64" / "libcudart.so"))
    library.cudaGetErrorString.restype = ctypes.c_char_p
    return library


def _demand(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error {status}: {_cudart().cudaGetErrorString(status).decode()}")
