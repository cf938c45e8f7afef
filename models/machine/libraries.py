"""Jittor's compiled libraries: linked under another name and moved into place, and removed where they are damaged.

Jittor links a library in its place and then stores a key, by which later runs take it for complete. A process that is
killed leaves its compiler alive, which may replace a complete library of another process, and be killed in turn.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from data.io.files import write_atomically

SEARCHED_FOLDERS = "COMPILER_PATH"  # where GCC and Clang look first for the linker
LOCK = "jittor.lock"  # beside the caches of all names
# An ELF file of 64 bits begins with a header: offset of the section table, size and number of its entries.
ELF_HEADER, ELF_MAGIC = struct.Struct("<4s36xQ10xHH2x"), b"\x7fELF"
COMPILED = (".so", ".o")
LINKER = """#!/bin/sh
# Links under another name, so that a library is complete or missing.
for argument; do
    [ "$before" = -o ] && output=$argument
    before=$argument
done
[ -z "$output" ] && exec {linker} "$@"
{linker} "$@" -o "$output.$$" && exec mv -f "$output.$$" "$output"
rm -f "$output.$$"
exit 1
"""


def use_linker(compiler: str, caches: Path) -> None:
    """Make the compilers that this process starts link atomically, with a linker in a folder below `caches`.

    Without effect where the compiler has no linker of its own, or the folder cannot be written.
    """
    given = os.environ.pop(SEARCHED_FOLDERS, "").split(os.pathsep)
    folders = [folder for folder in given if folder and Path(folder).parent != caches]
    if folders:
        os.environ[SEARCHED_FOLDERS] = os.pathsep.join(folders)
    if ours := _linker_folder(compiler, caches):
        os.environ[SEARCHED_FOLDERS] = os.pathsep.join([ours, *folders])


def _linker_folder(compiler: str, caches: Path) -> str:
    """The folder with the linker for the compiler, made if needed; "" if that is impossible."""
    try:
        asked = subprocess.run([compiler, "-print-prog-name=ld"], capture_output=True, text=True, check=True).stdout
        linker = shutil.which(asked.strip())
        if linker is None:
            return ""
        text = LINKER.format(linker=linker).encode()
        ours = caches / f"linker-{hashlib.sha256(text).hexdigest()[:16]}" / "ld"
        if not (os.access(ours, os.X_OK) and ours.read_bytes() == text):
            ours.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(ours, text)
            ours.chmod(0o755)
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(ours.parent)


def mend(caches: Path, name: str) -> list[Path]:
    """Remove damaged libraries and object files from Jittor's caches of a name; Jittor compiles them again.

    Returns those that were removed. Waits for processes that compile at the moment.
    """
    removed = []
    for cache in caches.glob(f"jt*/*/*/*/*/*/{name}"):
        damaged = [path for path in _compiled(cache) if not is_complete(path)]
        if damaged:
            with open(cache.parent / LOCK, "a") as lock:  # Jittor's own locks: of its import, and of operations
                fcntl.flock(lock, fcntl.LOCK_EX)
                fcntl.lockf(lock, fcntl.LOCK_EX)
                for path in damaged:
                    if not is_complete(path):
                        path.unlink(missing_ok=True)
                        removed.append(path)
    return removed


def is_complete(path: Path) -> bool:
    """Whether a library or object file has all the bytes that its header announces; the last are the section table."""
    try:
        with open(path, "rb") as file:
            start = file.read(ELF_HEADER.size)
        size = path.stat().st_size
    except OSError:
        return True  # gone, or not ours
    if len(start) < ELF_HEADER.size:
        return False
    magic, table, each, count = ELF_HEADER.unpack(start)
    return magic == ELF_MAGIC and table > 0 and table + each * count <= size


def _compiled(cache: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(cache):
        yield from (Path(folder, name) for name in names if name.endswith(COMPILED))
