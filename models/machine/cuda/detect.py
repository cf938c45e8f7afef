"""Detects driver, GPUs and CUDA toolkits: in the folders of NVIDIA, of the system and of conda, in pip's `nvidia-*`.

The driver is asked in a child process: it reads CUDA_VISIBLE_DEVICES, which selects the GPU, only at the first query.

Files that cannot be read, broken links and unexpected names are skipped. `os.path` is used for tests of files, since
pathlib raises for link loops, long names and unreadable folders.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from models.machine.cuda.choice import CUB, HEADERS, HOME_PREFIX, LIBRARIES, NPP, Driver, Gpu, Toolkit

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
    by_root: dict[Path, Toolkit] = {}
    for nvcc in _compilers(environment, roots):
        real = Path(os.path.realpath(nvcc))
        own = _own_root(real)
        if own not in by_root:
            by_root[own] = _toolkit(real, own, roots)
    return list(by_root.values())


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
    folders = dict.fromkeys(Path(os.path.realpath(folder)) for folder in candidates if os.path.isdir(folder))
    return [folder for folder in folders if not _is_ours(folder)]


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
    existing = (path for path in dict.fromkeys(candidates) if os.path.isfile(path) and os.access(path, os.X_OK))
    return [path for path in existing if not _is_ours(path)]


def _is_ours(path: str | Path) -> bool:
    """Whether a path is in a CUDA home made by this program, which is not a toolkit."""
    return any(OWN_HOME.fullmatch(part) for part in Path(os.path.realpath(path)).parts)


def _own_root(nvcc: Path) -> Path:
    """The root folder of a compiler; an nvcc on PATH may be a script that calls one in another folder."""
    root = nvcc.parent.parent
    if any(os.path.isfile(root / folder / HEADERS[0]) for folder in INCLUDE_FOLDERS) and root != SYSTEM:
        return root
    here = re.search(r"^#\$ _HERE_=(.+)$", _output(nvcc, "--dryrun", "-x", "cu", "-E", os.devnull), re.MULTILINE)
    return Path(os.path.realpath(here[1])).parent if here else root


def _toolkit(nvcc: Path, own: Path, roots: list[Path]) -> Toolkit:
    """A compiler with the headers and libraries of its major version; its own take precedence."""
    inner = own / "bin" / "nvcc"
    nvcc = inner if os.path.isfile(inner) else nvcc
    version = re.search(r"release (\d+)\.(\d+)", _output(nvcc, "--version"))
    release = (int(version[1]), int(version[2])) if version else (0, 0)
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


def major_of(root: Path) -> int:
    """The major version of CUDA in a folder; 0 if it is unknown."""
    for folder in INCLUDE_FOLDERS:
        if match := RUNTIME_VERSION.search(_text(root / folder / "cuda_runtime_api.h")):
            return int(match[1]) // 1000
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
    match = LIBRARY.fullmatch(os.path.basename(os.path.realpath(library))) or LIBRARY.fullmatch(library.name)
    return int((match and match[1]) or 0)


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


DRIVER_LIBRARY = "libcuda.so.1"
VISIBLE = "CUDA_VISIBLE_DEVICES"
VERSION_FILE = Path("/proc/driver/nvidia/version")
ANSWER_SECONDS = 60  # a GPU in power saving needs some seconds
MAJOR, MINOR = 75, 76  # cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
# Prints one line of JSON: newest CUDA, status, GPUs. Without site-packages it starts in about ten milliseconds.
QUESTION = f"""
import ctypes, json
cuda, number = ctypes.CDLL("{DRIVER_LIBRARY}"), ctypes.c_int(0)
def ask(function, *arguments):
    number.value = 0
    status = getattr(cuda, function)(ctypes.byref(number), *arguments)
    return 0 if status else number.value
newest, status, gpus = ask("cuDriverGetVersion"), cuda.cuInit(0), []
for index in range(0 if status else ask("cuDeviceGetCount")):
    device, name, size = ask("cuDeviceGet", index), ctypes.create_string_buffer(100), ctypes.c_size_t(0)
    if getattr(cuda, "cuDeviceGetName", lambda *_: 1)(name, 99, device):
        name.value = b"NVIDIA GPU"
    getattr(cuda, "cuDeviceTotalMem_v2", lambda *_: 1)(ctypes.byref(size), device)
    capability = 10 * ask("cuDeviceGetAttribute", {MAJOR}, device) + ask("cuDeviceGetAttribute", {MINOR}, device)
    gpus.append([name.value.decode("utf-8", "replace"), capability, size.value])
print(json.dumps([newest, status, gpus]))
"""
NO_GPU = "it finds no GPU"
# Status codes of cuda.h; other codes are reported by number.
STATUSES = {
    34: "its library is a stub of a toolkit: take that folder out of LD_LIBRARY_PATH",
    100: NO_GPU,
    304: "the system does not let it: check that this user may open /dev/nvidia*",
    802: "it waits for the fabric manager: start nvidia-fabricmanager",
    803: "the library of the driver and its kernel module are of different versions: restart the machine",
    804: "its library for older drivers (cuda-compat) does not fit the GPU: take that folder out of LD_LIBRARY_PATH",
    999: "it does not start: restart the machine, or see `nvidia-smi`",
}


def is_installed() -> bool:
    """Whether a driver is installed; it is not initialised."""
    try:
        ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return False
    return True


def ask(environment: Mapping[str, str]) -> Driver | None:
    """The driver as a process with that environment sees it; None without a driver."""
    if not is_installed():
        return None
    command = [sys.executable, "-I", "-S", "-c", QUESTION]
    try:
        output = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        ).stdout
        return _read(output, environment.get(VISIBLE))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return Driver((0, 0), own_version(), (), "it does not respond")


def _read(output: str, visible: str | None) -> Driver:
    """Parse the output of QUESTION; raises ValueError if it is invalid. visible: CUDA_VISIBLE_DEVICES, if set."""
    newest, status, gpus = json.loads(output)
    problem = "" if status == 0 else STATUSES.get(status, f"it fails with status {status}")
    chosen = "" if visible is None else f"{VISIBLE}={visible!r}"
    if problem == NO_GPU and chosen:
        problem = f"it finds no GPU among those of {chosen}: unset it, or name an existing one"
    offered = tuple(Gpu(str(name), int(capability), int(memory)) for name, capability, memory in gpus)
    return Driver((newest // 1000, newest % 1000 // 10), own_version(), offered, problem, chosen)


def own_version() -> str:
    """The version of the driver, such as 580.65.06; "" if unknown."""
    try:
        match = re.search(r"\s(\d{3,}\.[\d.]+)\s", VERSION_FILE.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return match[1] if match else ""
