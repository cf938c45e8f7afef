"""The forms of an operation that a test goes through: native on the CPU, plain Jittor, and CUDA's in emulation."""

from contextlib import contextmanager

from emulation import ORDERS, Emulator

from models.ops.kernel import NATIVE, REFERENCE, use
from models.ops.source import emulated

CUDA_FORMS = tuple(f"cuda, threads {order}" for order in ORDERS)
FORMS = (NATIVE, REFERENCE, *CUDA_FORMS)


@contextmanager
def in_form(form):
    """Within it every operation runs in this form."""
    if form in CUDA_FORMS:
        with emulated(Emulator(ORDERS[CUDA_FORMS.index(form)])):
            yield
    else:
        with use(form):
            yield
