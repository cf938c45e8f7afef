"""Makes Ctrl-Z and `fg` work while Jittor compiles, and Ctrl-C afterwards.

Jittor's handler of SIGCHLD ends the process when a child dies, for example a compiler killed by the kernel. It treats a
stopped child as a dead one. The handler is kept, but is no longer called for stopped children.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import signal
from collections.abc import Iterator

# struct sigaction of Linux's C libraries on 64 bits: handler, mask of 1024 bits, flags.
SIZE, FLAGS_AT = 256, 8 + 128  # bytes; SIZE is larger than needed
SA_NOCLDSTOP = 1


@contextlib.contextmanager
def ignore_stops() -> Iterator[None]:
    """Wrap the import of Jittor, which installs the handler before it compiles."""
    import jittor_utils

    load = jittor_utils.try_import_jit_utils_core

    def loaded(*given: bool) -> None:
        load(*given)
        ends_alone()

    jittor_utils.try_import_jit_utils_core = loaded
    try:
        ends_alone()
        yield
    finally:
        jittor_utils.try_import_jit_utils_core = load


def ends_alone() -> None:
    """Set SA_NOCLDSTOP for the handler of SIGCHLD: it is not called for children that stop or continue."""
    library, action = ctypes.CDLL(None), ctypes.create_string_buffer(SIZE)
    if library.sigaction(signal.SIGCHLD, None, action) != 0:
        return
    flags = ctypes.c_int.from_buffer(action, FLAGS_AT)
    flags.value |= SA_NOCLDSTOP
    library.sigaction(signal.SIGCHLD, action, None)


def end_compilers() -> None:
    """End the processes in which Jittor compiled itself: they stay, and each would report a later Ctrl-C."""
    import jittor_utils

    if jittor_utils.pool_size > 0:
        atexit.unregister(jittor_utils.pool_cleanup)
        jittor_utils.pool_cleanup()
        jittor_utils.pool_size = 0  # Jittor starts others if it needs them
