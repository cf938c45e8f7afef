"""Finds CUDA toolkits and their parts: in NVIDIA's folders, the system's, conda's, and pip's `nvidia-*`.

Files that cannot be read, broken links and unexpected names are skipped. `os.path` is used for tests of files, since
pathlib raises for link loops, long names and unreadable folders.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from models.machine.cuda.facts import CUB, HEADERS, HOME_PREFIX, LIBRARIES, NPP, Release, Toolkit

NVCC_SECONDS = 30
TARGET = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}.get(platform.machine(), f"{platform.machine()}-linux")
SYSTEM = Path("/usr")
SYSTEM_LIBRARIES = f"lib/{platform.machine()}-linux-gnu"
USUAL = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit")
INCLUDE_FOLDERS = ("include", f"targets/{TARGET}/include")
LIBRARY_FOLDERS = ("lib64", "lib", f"targets/{TARGET}/lib", SYSTEM_LIBRARIES)
RUNTIME_VERSION = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")
LIBRARY = re.compile(r"lib\w+\.so(?:\.(\d+)[\d.]*)?")
OWN_HOME = re.compile(HOME_PREFIX + "[0-9a-f]{12}")
VERSIONED = ("cudart", "cublas")  # libraries with the version of CUDA in their file names; cuRAND has its own version


def toolkits(environment: Mapping[str, str], path: Iterable[str]) -> list[Toolkit]:
    """Every nvcc with its headers and libraries; `path`: the folders of Python packages."""
    roots = search_roots(environment, path)
    found: dict[Path, Toolkit] = {}
    for nvcc in _compilers(environment, roots):
        real = Path(os.path.realpath(nvcc))
        own = _own_root(real)
        if own not in found:
            found[own] = _toolkit(real, own, roots)
    return list(found.values())


def search_roots(environment: Mapping[str, str], path: Iterable[str]) -> list[Path]:
    """The folders that may contain CUDA's bin/, include/ or lib/, in the order of precedence.

    Folders named by the user, usual folders, conda, pip packages, the system.
    """
    named = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")]
    usual = [match for pattern in USUAL for match in _newest_first(Path(pattern))]
    conda = [environment.get("CONDA_PREFIX", "")]
    packages = [Path(folder) / "nvidia" for folder in path if folder]
    wheels = [match for folder in packages for match in (*_newest_first(folder / "cu1*"), *_newest_first(folder / "*"))]
    candidates = [*map(Path, filter(None, named)), *usual, *map(Path, filter(None, conda)), *wheels, SYSTEM]
    found = dict.fromkeys(Path(os.path.realpath(folder)) for folder in candidates if os.path.isdir(folder))
    return [folder for folder in found if not _is_ours(folder)]


def package_folders() -> list[str]:
    """The folders of Python packages, which may contain NVIDIA's pip packages."""
    return [entry for entry in sys.path if os.path.isdir(entry)]


def _newest_first(pattern: Path) -> list[Path]:
    """The matching folders, sorted by the numbers in their names, the highest first."""
    matches = pattern.parent.glob(pattern.name) if os.path.isdir(pattern.parent) else []
    return sorted(matches, key=lambda match: [int(number) for number in re.findall(r"\d+", match.name)], reverse=True)


def _compilers(environment: Mapping[str, str], roots: list[Path]) -> list[Path]:
    """Every nvcc: from nvcc_path, CUDA_HOME, CUDA_PATH, PATH and the roots, in this order."""
    named = [environment.get("nvcc_path", "")]
    named += [f"{environment[name]}/bin/nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if environment.get(name)]
    folders = [folder for folder in environment.get("PATH", os.defpath).split(os.pathsep) if not _is_ours(folder)]
    named += [shutil.which("nvcc", path=os.pathsep.join(folders)) or ""]
    candidates = [*map(Path, filter(None, named)), *(root / "bin" / "nvcc" for root in roots)]
    found = (path for path in dict.fromkeys(candidates) if os.path.isfile(path) and os.access(path, os.X_OK))
    return [path for path in found if not _is_ours(path)]


def _is_ours(path: str | Path) -> bool:
    """Whether a path is in a CUDA home made by this program, which is not a toolkit."""
    return any(OWN_HOME.fullmatch(part) for part in Path(os.path.realpath(path)).parts)


def _own_root(nvcc: Path) -> Path:
    """The root folder of a compiler; an nvcc on PATH may be a script that calls one in another folder."""
    beside = nvcc.parent.parent
    if any(os.path.isfile(beside / folder / HEADERS[0]) for folder in INCLUDE_FOLDERS) and beside != SYSTEM:
        return beside
    here = re.search(r"^#\$ _HERE_=(.+)$", _output(nvcc, "--dryrun", "-x", "cu", "-E", os.devnull), re.MULTILINE)
    return Path(os.path.realpath(here[1])).parent if here else beside


def _toolkit(nvcc: Path, own: Path, roots: list[Path]) -> Toolkit:
    """A compiler with the headers and libraries of its major version; its own take precedence."""
    inner = own / "bin" / "nvcc"
    nvcc = inner if os.path.isfile(inner) else nvcc
    release = release_of(_output(nvcc, "--version"))
    codes = sorted({int(code) for code in re.findall(r"sm_(\d+)", _output(nvcc, "--list-gpu-code"))})
    fitting = [own, *(root for root in roots if root != own and major_of(root) in (0, release[0]))]
    optional = (NPP, CUB) if release[0] == 12 else (NPP,)
    headers = {name: _first(name, fitting, INCLUDE_FOLDERS) for name in (*HEADERS, *optional)}
    libraries = {name: _library(name, fitting, release[0]) for name in LIBRARIES}
    # A compiler without its own CUB (pip's without nvidia-cuda-cccl) uses that of the header folders.
    return Toolkit(
        nvcc=str(nvcc),
        release=release,
        codes=tuple(codes),
        headers={name: str(path) for name, path in headers.items() if path is not None},
        libraries={name: str(path) for name, path in libraries.items() if path is not None},
    )


def release_of(shown: str) -> Release:
    """The release in the output of `nvcc --version`; (0, 0) if there is none."""
    found = re.search(r"release (\d+)\.(\d+)", shown)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def major_of(root: Path) -> int:
    """The major version of CUDA in a folder; 0 if it is unknown."""
    for folder in INCLUDE_FOLDERS:
        if found := RUNTIME_VERSION.search(_text(root / folder / "cuda_runtime_api.h")):
            return int(found[1]) // 1000
    for name in VERSIONED:
        for folder in LIBRARY_FOLDERS:
            for file in _libraries(root / folder, name):
                if version := _version(file):
                    return version
    return 0


def _text(path: Path) -> str:
    """The text of a file; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _libraries(folder: Path, name: str) -> list[Path]:
    """The files of a library in a folder, unversioned or versioned, the shortest name first; no backup copies."""
    files = (path for path in folder.glob(f"lib{name}.so*") if LIBRARY.fullmatch(path.name) and os.path.isfile(path))
    return sorted(files, key=lambda path: len(path.name))


def _version(library: Path) -> int:
    """The major version in the name of a library or of its link target; 0 if there is none."""
    found = LIBRARY.fullmatch(os.path.basename(os.path.realpath(library))) or LIBRARY.fullmatch(library.name)
    return int((found and found[1]) or 0)


def _first(name: str, roots: list[Path], folders: Iterable[str]) -> Path | None:
    """The first file of that name."""
    paths = (root / folder / name for root in roots for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), None)


def _library(name: str, roots: list[Path], major: int) -> Path | None:
    """The first library of that name, unversioned or of the right major version."""
    for root in roots:
        for folder in LIBRARY_FOLDERS:
            for path in _libraries(root / folder, name):
                if name == "curand" or _version(path) in (0, major):
                    return path
    return None


def _output(nvcc: Path, *arguments: str) -> str:
    """The compiler's output on both streams; "" if it cannot be run."""
    try:
        done = subprocess.run([nvcc, *arguments], capture_output=True, check=False, timeout=NVCC_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout + done.stderr)  # folder names may contain any bytes
