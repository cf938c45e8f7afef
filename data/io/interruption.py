"""A Ctrl-C that Python meets while it deletes an object: Python prints it, forgets it, and the work goes on."""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Any

AGAIN_AFTER = 0.05  # seconds; by then the object is deleted


def keep_interruptions() -> None:
    """Have such an interruption come again a moment later; for the process of the command line."""
    before = sys.unraisablehook

    def heard(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        again = threading.Timer(AGAIN_AFTER, _thread.interrupt_main)
        again.daemon = True
        again.start()

    sys.unraisablehook = heard
