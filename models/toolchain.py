"""What Jittor needs from the machine, looked at before it is imported: compiler, headers, NumPy, CUDA."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

from data.errors import UserError

# Jittor 1.3.11 cannot be built by nvcc 13: its bundled headers use fields CUDA 13 removed, and it forces C++14.
NEWEST_CUDA_MAJOR = 12
PYTHON_VERSIONS = ((3, 11), (3, 12))  # 3.13 breaks Jittor's loader of compiled modules


def check() -> None:
    """Raises UserError, naming the package to install, where Jittor could not be built or would compute garbage."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info[:2] not in PYTHON_VERSIONS:
        raise UserError(f"Python {version} does not run Jittor 1.3.11: use Python 3.11 or 3.12")
    if int(importlib.metadata.version("numpy").split(".")[0]) >= 2:
        raise UserError('numpy 2 gives Jittor 1.3.11 wrong numbers without an error: pip install "numpy<2"')
    compiler = os.environ.get("cc_path", "g++")
    if shutil.which(compiler) is None:
        raise UserError(f"the C++ compiler {compiler} is missing: install g++ (Debian, Ubuntu: apt install g++)")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file() or not python_config():
        raise UserError(
            f"the headers of Python {version} are missing ({header}, python{version}-config): install the package "
            f"python{version}-dev (Debian, Ubuntu: apt install python{version}-dev)"
        )


def python_config() -> str:
    """Path of pythonX.Y-config, which Jittor asks for include paths; "" where there is none."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}-config"
    beside = Path(sys.base_prefix) / "bin" / name  # a virtual environment has none of its own
    if beside.is_file():
        return str(beside)
    return shutil.which(name) or ""


def nvcc() -> str:
    """Path of the real CUDA compiler (shell wrappers on the PATH mislead Jittor); "" where there is none."""
    candidates = [os.environ.get("nvcc_path", ""), "/usr/local/cuda/bin/nvcc", shutil.which("nvcc") or ""]
    for candidate in filter(None, candidates):
        path = Path(candidate).resolve()
        if path.is_file() and (path.parent.parent / "include" / "cuda_runtime.h").is_file():
            return str(path)
    return ""


@lru_cache(maxsize=1)
def cuda_obstacle() -> str:
    """Why CUDA cannot be used here, in a clause; "" where it can."""
    compiler = nvcc()
    if not compiler:
        return "no CUDA toolkit found (nvcc with its headers)"
    home = Path(compiler).parent.parent
    if not any((home / folder / "libcudart.so").exists() for folder in ("lib64", "lib")):
        return f"the CUDA toolkit {home} has no libcudart.so"
    shown = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    release = re.search(r"release (\d+)\.", shown)
    if release is None:
        return f"{compiler} does not tell its version"
    if int(release[1]) > NEWEST_CUDA_MAJOR:
        return f"Jittor 1.3.11 cannot be built with CUDA {release[1]}, only up to {NEWEST_CUDA_MAJOR}"
    return "" if _cuda_device_count() > 0 else "no NVIDIA GPU answers"


def cuda_free_bytes() -> int:
    """Free memory of the current card, bytes; 0 where it cannot be asked."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
        return int(shown[int(os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])]) * 2**20
    except (OSError, ValueError, IndexError):  # no such program, a card without the figure, a card named by its UUID
        return 0


def _cuda_device_count() -> int:
    """Number of cards the driver offers; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
