"""What no home could be made of is remembered: trying a compiler takes seconds, at every start.

A user who mends it is not told what was so before. What was tried has to look the same, and where nothing else can be
used it is tried again after a while, for what is mended elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from data.io.files import write_atomically
from models.machine.cuda.facts import Toolkit

PATIENCE = 600.0  # seconds for which it is not tried again, whatever was mended elsewhere
MOST_BYTES = 1 << 16  # of such a file
# What compilers read of the environment.
VARIABLES = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
VARIABLES += ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CICC_PATH", "CUDA_PATH")


def recall(file: Path, looks: str, patience: float) -> tuple[str, str] | None:
    """What is wrong and what to do, as it was noted at most `patience` seconds ago for what looked so; else None."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= MOST_BYTES and abs(time.time() - file.stat().st_mtime) < patience:
            noted = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(noted, list) and len(noted) == 3 and all(isinstance(part, str) for part in noted):
                return (noted[1], noted[2]) if noted[0] == looks else None
    return None


def note(file: Path, looks: str, words: str, remedy: str) -> None:
    """From now on it is remembered; where it cannot be written it is tried again."""
    with contextlib.suppress(OSError):
        write_atomically(file, json.dumps([looks, words, remedy]).encode())


def looks(toolkit: Toolkit, compilers: Iterable[str]) -> str:
    """What changes where any of it is installed anew, or something beside it: names, times and sizes."""
    root = Path(toolkit.nvcc).parent.parent
    files = [Path(file) for file in (toolkit.nvcc, *toolkit.headers.values(), *toolkit.libraries.values())]
    folders = {root, *_folders(root), *(file.parent for file in files)}
    seen = [(str(path), _state(path)) for path in (*files, *sorted(folders), *map(Path, compilers))]
    return hashlib.sha256(repr((seen, [os.environ.get(name) for name in VARIABLES])).encode()).hexdigest()


def _folders(root: Path) -> list[Path]:
    """The folders of a toolkit, two deep: pip's and NVIDIA's installers put programs no deeper, nvvm/bin."""
    return [path for pattern in ("*", "*/*") for path in root.glob(pattern) if path.is_dir()]


def _state(path: Path) -> tuple[int, int] | None:
    """When a file was written, and its size; None where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
