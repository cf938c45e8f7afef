"""Pinned memory of the host, into which a GPU copies while the host goes on, and the event that marks a copy's end."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from models.machine.backend import choice

BYTES = 1024  # of one piece of memory
NO_TIMING = 2  # cudaEventDisableTiming


class Pinned:
    """BYTES of pinned memory and an event, as addresses for CUDA sources; never freed, so reuse them."""

    def __init__(self) -> None:
        memory, event = ctypes.c_void_p(0), ctypes.c_void_p(0)
        _demand(_cudart().cudaHostAlloc(ctypes.byref(memory), ctypes.c_size_t(BYTES), 0))
        _demand(_cudart().cudaEventCreateWithFlags(ctypes.byref(event), NO_TIMING))
        self.address, self.event = memory.value or 0, event.value or 0
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * BYTES).from_address(self.address))

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
