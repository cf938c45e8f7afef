"""Ctrl-Z and `fg` while Jittor compiles: its handler of SIGCHLD takes a child that was stopped for one that died.

The handler ends the process, so that a compiler which the kernel kills does not leave it waiting for ever. It is left
in its place and hears of ends alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Iterator

# struct sigaction of Linux's C libraries on 64 bits: handler, mask of 1024 bits, flags.
SIZE, FLAGS_AT = 256, 8 + 128  # the former with room to spare
SA_NOCLDSTOP = 1


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Around the import of Jittor, which installs the handler before it compiles."""
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
    """From now on the handler of SIGCHLD, whatever it is, is not called for children that stop or go on."""
    library, action = ctypes.CDLL(None), ctypes.create_string_buffer(SIZE)
    if library.sigaction(signal.SIGCHLD, None, action) != 0:
        return
    flags = ctypes.c_int.from_buffer(action, FLAGS_AT)
    flags.value |= SA_NOCLDSTOP
    library.sigaction(signal.SIGCHLD, action, None)
