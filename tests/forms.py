"""The forms of an operation that a test goes through: the device's own, plain Jittor, and CUDA's in emulation.

On a card the device's own form is CUDA's, so there nothing is emulated: the real one takes the place of the emulated.
"""

from contextlib import contextmanager

import pytest
from emulation import ORDERS, Emulator

from models.ops.kernel import NATIVE, REFERENCE, use
from models.ops.source import CUDA, device, emulated


def emulated_on(name):
    """The forms that are emulated on a device."""
    return () if name == CUDA else tuple(f"cuda, threads {order}" for order in ORDERS)


IS_ON_GPU = device() == CUDA
EMULATED = emulated_on(device())
CUDA_FORMS = EMULATED or (NATIVE,)
OWN_FORMS = (NATIVE, *EMULATED)  # all but the reference
FORMS = (NATIVE, REFERENCE, *EMULATED)
only_on_the_cpu = pytest.mark.skipif(IS_ON_GPU, reason="of the CPU's memory, or in the host's Python")


@contextmanager
def in_form(form):
    """Within it every operation runs in this form; yields the names of the functions that are emulated, or None."""
    if form in EMULATED:
        emulator = Emulator(ORDERS[EMULATED.index(form)])
        with emulated(emulator):
            yield emulator.called
    else:
        with use(form):
            yield None
