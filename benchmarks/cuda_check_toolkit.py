"""An nvcc with all headers, and the pretended card that is made from it, for cuda_check.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pretend.build import Pretended, build, key, renew
from models.machine.cuda import search
from models.machine.cuda.facts import HEADERS, Toolkit

PACKAGES = {12: ("nvidia-cublas-cu12", "nvidia-curand-cu12"), 13: ("nvidia-cublas==13.0.*", "nvidia-curand==10.4.*")}
NEEDED = (*HEADERS, "cudart")  # of a toolkit; the libraries are pretended


def found_toolkit(cache: Path) -> Toolkit | str:
    """An nvcc with the headers that are needed, fetched where they are missing; or why there is none."""
    found = _usable(search.package_folders())
    if found is None:
        return "there is no nvcc of CUDA 12.0 to 13.x"
    if not _missing(found):
        return found
    packages = PACKAGES[found.release[0]]
    folder = cache / f"cuda-headers-{found.release[0]}"
    if not folder.is_dir() and (reason := _fetch(packages, folder)):
        return f"the headers of {' and '.join(packages)} cannot be fetched ({reason})"
    found = _usable([*search.package_folders(), str(folder)])
    missing = _missing(found) if found else ["nvcc"]
    return f"{', '.join(missing)} cannot be found" if missing else found


def _usable(folders: list[str]) -> Toolkit | None:
    """The first compiler of a version that Jittor is known to compile with; the most complete of them."""
    known = [found for found in search.toolkits(os.environ, folders) if found.release[0] in PACKAGES]
    return min(known, key=lambda found: len(_missing(found)), default=None)


def _missing(toolkit: Toolkit) -> list[str]:
    return [name for name in NEEDED if name not in toolkit.headers and name not in toolkit.libraries]


def _fetch(packages: Sequence[str], folder: Path) -> str:
    """pip's packages in a folder, of which only the headers are kept; returns why it did not work."""
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        print(f"fetching the headers of {' and '.join(packages)}", flush=True)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", scratch, *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip fails"])[-1]
        for library in scratch.rglob("*.so*"):
            library.write_bytes(b"")  # its name tells the version; nothing is linked to it
        os.rename(scratch, folder)
        return ""
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def pretended_card(toolkit: Toolkit, codes: Sequence[int], cache: Path) -> Pretended:
    """The pretended toolkit and driver for `codes`, the card's own last; what is compiled against them is kept."""
    folder = cache / f"cuda-pretend-{key(toolkit, codes)}"
    made = Pretended(folder, codes[-1])
    if not folder.is_dir():
        scratch = Path(tempfile.mkdtemp(dir=cache))
        try:
            build(toolkit, codes, scratch)
            os.rename(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    renew(made)
    return made
