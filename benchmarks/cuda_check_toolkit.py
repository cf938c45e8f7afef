"""Find an nvcc with all headers, and build the simulated GPU with it, for cuda_check.py."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.pretend.build import COMPILER, Pretended, build, key, renew
from data.errors import LONGEST_REASON, UserError
from models.machine.cuda import search
from models.machine.cuda.facts import HEADERS, Toolkit

PACKAGES = {12: ("nvidia-cublas-cu12", "nvidia-curand-cu12"), 13: ("nvidia-cublas==13.0.*", "nvidia-curand==10.4.*")}
NEEDED = (*HEADERS, "cudart")  # of a toolkit; the libraries are simulated


class _FetchError(Exception):
    """pip did not bring the packages; the text is its last line."""


def found_compiler() -> Toolkit | str:
    """An nvcc of a known version, possibly without some headers; or the reason why there is none."""
    return _usable(search.package_folders()) or "there is no nvcc of CUDA 12.0 to 13.x"


def completed(found: Toolkit, cache: Path) -> Toolkit | str:
    """The compiler with the headers that are needed, fetched into `cache` where they are missing; or why it has none.

    Raises OSError if the cache cannot be written to.
    """
    if not _missing(found):
        return found
    packages = PACKAGES[found.release[0]]
    folder = cache / f"cuda-headers-{found.release[0]}"
    try:
        if not folder.is_dir():
            _fetch(packages, folder)
    except _FetchError as error:
        return f"the headers of {' and '.join(packages)} cannot be fetched ({error})"
    whole = _usable([*search.package_folders(), str(folder)])
    missing = _missing(whole) if whole else ["nvcc"]
    return f"{', '.join(missing)} cannot be found" if missing else whole


def _usable(folders: list[str]) -> Toolkit | None:
    """The most complete compiler of a version that Jittor is known to work with."""
    known = [found for found in search.toolkits(os.environ, folders) if found.release[0] in PACKAGES]
    return min(known, key=lambda found: len(_missing(found)), default=None)


def _missing(toolkit: Toolkit) -> list[str]:
    return [name for name in NEEDED if name not in toolkit.headers and name not in toolkit.libraries]


def _fetch(packages: Sequence[str], folder: Path) -> None:
    """pip's packages in a folder, of which only the headers are kept.

    Raises _FetchError where pip fails, OSError where the disk is full.
    """
    with _made(folder) as scratch:
        print(f"fetching the headers of {' and '.join(packages)}", flush=True)
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", scratch, *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            if os.strerror(errno.ENOSPC) in done.stderr:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{folder.parent} or {tempfile.gettempdir()}")
            raise _FetchError((done.stderr.strip().splitlines() or ["pip fails"])[-1][:LONGEST_REASON])
        for library in scratch.rglob("*.so*"):
            library.write_bytes(b"")  # its name gives the version; nothing is linked to it


def simulated_gpu(toolkit: Toolkit, codes: Sequence[int], cache: Path) -> Pretended:
    """The simulated toolkit and driver for `codes`, the last of which is that of the GPU; compiled libraries are kept.

    Raises UserError if there is no C compiler or it fails, for example because the disk is full; otherwise OSError.
    """
    if shutil.which(COMPILER) is None:
        raise UserError(
            f"the C compiler {COMPILER} is missing, which compiles the simulated libraries: install {COMPILER}"
        )
    folder = cache / f"cuda-pretend-{key(toolkit, codes)}"
    made = Pretended(folder, codes[-1])
    try:
        if not folder.is_dir():
            with _made(folder) as scratch:
                build(toolkit, codes, scratch)
        renew(made)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        words = f" ({said[-1]})" if said else ""
        raise UserError(f"the C compiler {COMPILER} fails in {cache}{words}: make room there and in TMPDIR") from error
    return made


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """An empty temporary folder that is renamed after the body, so that the result is complete or absent."""
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        yield scratch
        os.rename(scratch, folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
