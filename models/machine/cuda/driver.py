"""Queries the NVIDIA driver in a child process.

A child is used because the driver reads CUDA_VISIBLE_DEVICES, which selects the GPU, only at the first query.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from models.machine.cuda.facts import Driver, Gpu

LIBRARY = "libcuda.so.1"
VISIBLE = "CUDA_VISIBLE_DEVICES"
VERSION_FILE = Path("/proc/driver/nvidia/version")
ANSWER_SECONDS = 60  # a GPU in power saving needs some seconds
MAJOR, MINOR = 75, 76  # cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
# Prints one line of JSON: newest CUDA, status, GPUs. Without site-packages it starts in about ten milliseconds.
QUESTION = f"""
import ctypes, json
cuda, number = ctypes.CDLL("{LIBRARY}"), ctypes.c_int(0)
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
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def ask(environment: Mapping[str, str]) -> Driver | None:
    """The driver as a process with that environment sees it; None without a driver."""
    if not is_installed():
        return None
    command = [sys.executable, "-I", "-S", "-c", QUESTION]
    try:
        shown = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        ).stdout
        return _read(shown, environment.get(VISIBLE))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return Driver((0, 0), own_version(), (), "it does not respond")


def _read(shown: str, visible: str | None) -> Driver:
    """Parse the output of QUESTION; raises ValueError if it is invalid. visible: CUDA_VISIBLE_DEVICES, if set."""
    newest, status, gpus = json.loads(shown)
    problem = "" if status == 0 else STATUSES.get(status, f"it fails with status {status}")
    chosen = "" if visible is None else f"{VISIBLE}={visible!r}"
    if problem == NO_GPU and chosen:
        problem = f"it finds no GPU among those of {chosen}: unset it, or name an existing one"
    offered = tuple(Gpu(str(name), int(capability), int(memory)) for name, capability, memory in gpus)
    return Driver((newest // 1000, newest % 1000 // 10), own_version(), offered, problem, chosen)


def own_version() -> str:
    """The version of the driver, such as 580.65.06; "" if unknown."""
    try:
        found = re.search(r"\s(\d{3,}\.[\d.]+)\s", VERSION_FILE.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found[1] if found else ""
