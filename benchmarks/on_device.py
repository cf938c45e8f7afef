"""Run a Python program on a required device: `python -m benchmarks.on_device cuda [--tf32] PROGRAM ARGUMENTS`.

PROGRAM is a file or the name of a module. If the device cannot be used, the program is not run; there is no fallback to
the CPU.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from data.errors import UserError
from models.machine import backend, jittor_import


def main(arguments: Sequence[str]) -> None:
    """Print the device and run the program; exits as the program does."""
    device, *command = arguments
    try:
        jittor_import.select(device)
        info = backend.device_info()
    except UserError as error:
        sys.exit(f"error: {error}")
    print(info.line(), flush=True)
    if command[0] == "--tf32":
        backend.allow_tf32(True)
        command = command[1:]
    sys.argv = command
    if command[0].endswith(".py"):
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")
    else:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
