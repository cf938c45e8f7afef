"""Records toolkits whose compiler failed, since a test at every start would take seconds.

A record is valid only while the files of the toolkit and the environment are unchanged. If no other toolkit works, a
failed one is tested again after PATIENCE, in case the cause was elsewhere and is fixed.
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

PATIENCE = 600.0  # seconds until a failed toolkit is tested again
MOST_BYTES = 1 << 16  # of a record
# Environment variables that compilers read.
VARIABLES: tuple[str, ...] = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
VARIABLES += ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CICC_PATH", "CUDA_PATH")


def recall(file: Path, looks: str, patience: float) -> tuple[str, str] | None:
    """Reason and remedy recorded at most `patience` seconds ago for the same `looks`; None otherwise."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= MOST_BYTES and abs(time.time() - file.stat().st_mtime) < patience:
            noted = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(noted, list) and len(noted) == 3 and all(isinstance(part, str) for part in noted):
                return (noted[1], noted[2]) if noted[0] == looks else None
    return None


def note(file: Path, looks: str, words: str, remedy: str) -> None:
    """Record a failure; an error while writing is ignored."""
    with contextlib.suppress(OSError):
        write_atomically(file, json.dumps([looks, words, remedy]).encode())


def looks(toolkit: Toolkit, compilers: Iterable[str]) -> str:
    """A hash of names, times and sizes of the toolkit's files and the compilers, which changes on reinstallation."""
    root = Path(toolkit.nvcc).parent.parent
    files = [Path(file) for file in (toolkit.nvcc, *toolkit.headers.values(), *toolkit.libraries.values())]
    folders = {root, *_folders(root), *(file.parent for file in files)}
    seen = [(str(path), _state(path)) for path in (*files, *sorted(folders), *map(Path, compilers))]
    return hashlib.sha256(repr((seen, [os.environ.get(name) for name in VARIABLES])).encode()).hexdigest()


def _folders(root: Path) -> list[Path]:
    """The folders of a toolkit, two levels deep, which include all programs, such as those of nvvm/bin."""
    return [path for pattern in ("*", "*/*") for path in root.glob(pattern) if path.is_dir()]


def _state(path: Path) -> tuple[int, int] | None:
    """Modification time and size of a file; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
