"""Early ends of a training by a signal.

The first signal ends the training after the current step, the second one at once. SIGHUP, which a closed ssh session
sends, may arrive twice (from the terminal and the shell) or after SIGTERM (from systemd), so it never counts as the
second one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from data.errors import is_compiler_failure

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED_KEY = "stopped"  # key in the state: why the training that wrote the checkpoint was stopped
EXIT_BASE = 128  # a shell's exit status for a process that a signal ended is this plus the signal


class Interrupted(Exception):
    """A signal ended the training, which was saved; `status` is the exit status."""

    def __init__(self, signum: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} after step {step}")
        self.status = EXIT_BASE + signum


class Interrupts:
    """Within the context, SIGINT, SIGTERM and SIGHUP are recorded in `received`; a second one ends the process.

    Signals that are ignored, as by `nohup`, remain ignored. Python handlers replace Jittor's, which ends the process at
    the first SIGINT. Outside the main thread, where Python allows no handlers, nothing changes.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [signum for signum in STOP_SIGNALS if signal.getsignal(signum) != signal.SIG_IGN]
            self._before = {signum: signal.signal(signum, self._handle) for signum in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def ignoring_killed_compiler(self) -> Iterator[None]:
        """Context manager: after a signal, a failed compiler is no error: a terminal sends Ctrl-C to it, too."""
        try:
            yield
        except RuntimeError as error:
            if self.received is None or not is_compiler_failure(error):
                raise
            from models.machine import memory  # imports Jittor, which has been loaded then

            memory.release_after_failure(error)

    def request(self) -> None:
        """End the training as Ctrl-C does."""
        self.received = self.received or signal.SIGINT

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        """Record the first signal; exit at the second without flushing, as checkpoints are complete at any time."""
        if self.received is None:
            self.received = signum
        elif signum != signal.SIGHUP:
            os._exit(EXIT_BASE + signum)
