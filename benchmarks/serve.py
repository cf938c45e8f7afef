"""One side of a measurement: a process that answers one JSON line on stdout for each JSON line on stdin.

Imported by both sides, each in its own interpreter: the standard library only, and nothing of either project.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., dict[str, Any]]


def serve(commands: dict[str, Command]) -> None:
    """Answer `[name, *arguments]` with what the command of that name returns, until stdin ends.

    Each answer also tells `peak_bytes`. What the commands print goes to stderr, so that stdout carries answers only.
    """
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        answers.write(json.dumps({"ready": True}) + "\n")
        answers.flush()
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            answer = commands[name](*arguments)
            answers.write(json.dumps(answer | {"peak_bytes": peak_bytes()}) + "\n")
            answers.flush()


def peak_bytes() -> int:
    """Peak resident memory of this process, Linux.

    VmHWM and not getrusage's ru_maxrss, which a child inherits from the process that started it.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
