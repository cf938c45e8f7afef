"""Keeps a Ctrl-C that arrives while Python deletes an object; Python itself prints and drops that exception."""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Any

AGAIN_AFTER = 0.05  # seconds; by then the object is deleted


def keep_interruptions() -> None:
    """Install a hook that raises such an interruption again after AGAIN_AFTER seconds. The command line calls it."""
    before = sys.unraisablehook

    def on_unraisable(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        again = threading.Timer(AGAIN_AFTER, _thread.interrupt_main)
        again.daemon = True
        again.start()

    sys.unraisablehook = on_unraisable
