"""Numbers that are read later: the copy, also in CUDA's form."""

import ctypes

import numpy as np
import pytest
from forms import ORDERS, Emulator

from models.machine.backend import DeviceInfo, jt
from models.ops import later
from models.ops.later import PINNED_BYTES, Later
from models.ops.source import emulated


class HostMemory:
    """Stands in for pinned memory."""

    event = 0

    def __init__(self):
        self._memory = (ctypes.c_uint8 * PINNED_BYTES)(*[0xAA] * PINNED_BYTES)
        self.address = ctypes.addressof(self._memory)

    def read(self, shape, dtype):
        size = int(np.prod(shape)) * dtype.itemsize
        assert bytes(self._memory[size:]) == b"\xaa" * (PINNED_BYTES - size)
        return np.frombuffer(bytes(self._memory[:size]), dtype).reshape(shape)


VALUES = [np.array([True]), np.arange(5, dtype=np.int32), np.array([[0.5, np.nan]], "float32")]


@pytest.mark.unit
@pytest.mark.parametrize("values", VALUES)
def test_what_is_read_are_the_values(values):
    assert_equal(Later(jt.array(values)).read(), values)


@pytest.mark.unit
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("values", VALUES)
def test_what_a_gpu_copies_is_read_once_each(monkeypatch, values, order):
    monkeypatch.setattr(later, "device_info", lambda: DeviceInfo("cuda", "", 1, 1.0, ""))
    monkeypatch.setattr(later, "Pinned", HostMemory)
    monkeypatch.setattr(later, "_free", [])
    with emulated(Emulator(order)):
        first, second = Later(jt.array(values)), Later(jt.array(np.logical_not(values)))
        assert_equal(first.read(), values)
        assert_equal(second.read(), np.logical_not(values))
    assert len(later._free) == 2


def assert_equal(found, values):
    assert found.dtype == values.dtype and found.shape == values.shape
    np.testing.assert_array_equal(found, values)
