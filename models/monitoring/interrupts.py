"""Early ends of a training: it diverges, or a signal stops it.

The first signal is heeded at the end of the step, the second at once. SIGHUP, which a closed ssh sends, may come twice
(from the terminal and from the shell) or after SIGTERM (from systemd): it never hurries.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_BASE = 128  # a shell's exit status for a process that a signal ended is this plus the signal


class Interrupted(Exception):
    """The training was asked to stop and has saved its work; `status` is the exit status."""

    def __init__(self, signum: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} after step {step}")
        self.status = EXIT_BASE + signum


class DivergedError(Exception):
    """The training was given up because its numbers do not stay finite, or it ended with nothing of use."""


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP are noted in `received`; a second one ends the process at once.

    A signal that is ignored, as `nohup` has it, stays ignored. Handlers are Python's, so Jittor's own (which ends the
    process at the first SIGINT) does not run. Outside the main thread, where Python allows no handlers, nothing is
    changed.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [signum for signum in STOPPING if signal.getsignal(signum) != signal.SIG_IGN]
            self._before = {signum: signal.signal(signum, self._handle) for signum in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the first signal; leave at the second, with nothing flushed: checkpoints are complete at any moment."""
        if self.received is None:
            self.received = signum
        elif signum != signal.SIGHUP:
            os._exit(EXIT_BASE + signum)
