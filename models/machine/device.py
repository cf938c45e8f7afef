"""The device of this process: what was asked for, and what Jittor runs on."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.machine.cuda.home import Home


@dataclass(frozen=True)
class DeviceInfo:
    """The device of the process, for the log."""

    name: str  # "cpu" or "cuda"
    reason: str  # why the GPU is not used; "" otherwise
    threads: int  # CPU threads of matrix products and native kernels
    memory_gib: float  # free memory: main memory on the CPU, GPU memory on CUDA
    warning: str  # a sentence for the user; "" for none

    def line(self) -> str:
        """One line for the log."""
        because = f" ({self.reason})" if self.reason else ""
        threads = "1 CPU thread" if self.threads == 1 else f"{self.threads} CPU threads"
        return f"device {self.name}{because}, {threads}, {self.memory_gib:.1f} GiB of memory free"


@dataclass
class Choice:
    """The requested device, and the result of importing Jittor."""

    device: str = "auto"
    gpu: int = 0
    processes: int = 1  # of one training on this machine, which share its main memory
    info: DeviceInfo | None = None
    is_trial: bool = False  # this process tests whether Jittor works on the GPU
    home: Home | None = None  # the CUDA home; None on the CPU


choice = Choice()


def device_free_bytes() -> int:
    """Free memory of Jittor's GPU, bytes; 0 if it is unknown."""
    if choice.home is None:
        return 0
    runtime = ctypes.CDLL(str(choice.home.folder / "lib64" / "libcudart.so"))  # the library that Jittor has loaded
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    return free.value if runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0 else 0
