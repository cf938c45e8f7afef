"""The only import of Jittor: prepares the process, imports Jittor, and selects the device.

A plain `import jittor` downloads oneDNN from its authors' server, crashes if `nvcc` is on the PATH of a machine without
a GPU, prints, replaces signal handlers and disables the verification of TLS certificates. Therefore:

* `select(device, gpu)` chooses the device; nothing is imported yet, and an invalid choice is a `UserError`.
* `from models.machine.backend import jt` imports Jittor at the first use, with that choice (`auto` by default).

`toolchain` checks Jittor's requirements first, `gemm` attaches the fast matrix product on the CPU, and `cuda` detects
GPUs and makes the CUDA home that Jittor builds against. If that fails, the CPU is used, and the device line says why.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import ssl
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from data.errors import UserError, is_allocation_failure
from models.machine import environment, jittor_source, progress, toolchain
from models.machine.available import available_bytes
from models.machine.cuda import start
from models.machine.cuda.choice import insisted
from models.machine.cuda.home import Home
from models.machine.device import DeviceInfo, choice, device_free_bytes
from models.machine.progress import compile_progress
from models.machine.ranks.process import here
from models.requests import DEVICES

ASKED_FOR = "asked for"  # the reason for a device that the user chose
MPI_VARIABLE = "OMPI_COMM_WORLD_SIZE"
KERNEL_FLAGS = " --extended-lambda "  # for nvcc: the operations use device lambdas


def select(device: str = "auto", gpu: int = 0) -> None:
    """Choose the device of this process; must be called before the first use of `jt`.

    Args:
        device: "auto" (CUDA if it works, else the CPU), "cpu" or "cuda".
        gpu: index of the GPU.
    Raises:
        UserError: unknown device, or "cuda" although CUDA does not work.
    """
    if device not in DEVICES:
        raise UserError(f"--device {device}: unknown device; use one of {', '.join(DEVICES)}")
    if choice.info is not None and device not in ("auto", choice.info.name):
        raise UserError(f"--device {device}: Jittor already runs on {choice.info.name} in this process")
    if choice.info is None:
        toolchain.check_environment()
    if device == "cuda" and choice.info is None and not (found := cuda_ready(gpu)).home:
        raise UserError(insisted(found.reason))
    choice.device, choice.gpu = device, gpu


def device_name() -> str:
    """The device, "cpu" or "cuda", that Jittor runs on or will be imported for; a GPU is tried at its first use."""
    return choice.info.name if choice.info else "cuda" if _place(choice.device, choice.gpu)[0] else "cpu"


def gpu_bytes() -> int:
    """Total memory of the GPU that is or will be used, bytes; 0 on the CPU."""
    home = choice.home
    if choice.info is None and choice.device != "cpu":
        home = cuda_ready(choice.gpu).home
    return 0 if home is None else home.plan.gpu.memory


def load() -> Any:
    """Import Jittor, once; returns the module."""
    toolchain.check()
    toolchain.check_environment()
    jittor_source.use(toolchain.cache_folder())
    choice.processes = here().local_size
    choice.home, reason = _place(choice.device, choice.gpu)
    with environment.jittor_environment(choice.home, choice.gpu):
        module = _prepared()
        choice.info = _describe(reason, "" if choice.home else _attach_matmul(module))
        progress.end_compilers()
    return module


def _prepared() -> Any:
    """Import Jittor and set its device."""
    environment.mend(toolchain.cache_folder(), os.environ["cache_name"])
    module = _import_quietly()
    module.flags.use_cuda = 0 if choice.home is None else 1
    if choice.home is not None:
        module.flags.nvcc_flags += KERNEL_FLAGS
        module.flags.use_cuda_host_allocator = 0  # otherwise each upload waits for all earlier kernels
    return module


def _describe(reason: str, warning: str) -> DeviceInfo:
    """The `DeviceInfo` of the imported Jittor."""
    is_cpu = choice.home is None
    return DeviceInfo(
        name="cpu" if is_cpu else "cuda",
        reason=reason if reason != ASKED_FOR else "",
        threads=toolchain.threads(os.environ[toolchain.THREADS_VARIABLE]),
        memory_gib=(available_bytes() if is_cpu else device_free_bytes()) / 2**30,
        warning=warning,
    )


def cuda_ready(gpu: int) -> start.Ready:
    """The CUDA home for GPU `gpu`, made if needed, or the reason why there is none."""
    return start.ready(gpu, toolchain.cache_folder(), toolchain.compiler())


@cache
def _place(device: str, gpu: int) -> tuple[Home | None, str]:
    """The CUDA home, or None for the CPU with the reason.

    Raises UserError if CUDA was requested and does not work.
    """
    if device == "cpu":
        return None, ASKED_FOR
    found = cuda_ready(gpu)
    home, reason = found.home, found.reason
    if home is not None and not choice.is_trial and (words := _trial(home)):
        reason, home = f"{home.plan.gpu.words} is not used because Jittor fails on it, {words}", None
    if home is None and device == "cuda":
        raise UserError(insisted(reason))
    return home, "" if home else reason


def _trial(home: Home) -> str:
    """Why Jittor fails on the GPU, "" if it works; tried once per home, which also compiles Jittor."""
    with compile_progress(_caches):
        return start.failure(home, try_cuda, choice.gpu)


def try_cuda(report: Callable[[Any], None], gpu: int) -> None:
    """Import Jittor on the GPU and compute a small product. A task for a child process, which may crash.

    Raises RuntimeError for a wrong result, and the exceptions of Jittor.
    """
    choice.device, choice.gpu, choice.is_trial = "cuda", gpu, True
    module = load()
    values = module.ones((64, 32))
    found = (module.matmul(values, values.transpose()) + 1.0).sum()
    if float(found.item()) != 64 * 64 * 33.0:
        raise RuntimeError(f"a sum is {found.item()} and must be {64 * 64 * 33}")


def _import_quietly() -> Any:
    """`import jittor` without its prints; undoes its changes to the process."""
    https_context, hook, leave = ssl._create_default_https_context, sys.excepthook, sys.exit
    recursion = sys.getrecursionlimit()
    printed = io.StringIO()
    try:
        with compile_progress(_cache), contextlib.redirect_stdout(printed), _without_mpi(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the syntax of its sources, which no installation has compiled
            import jittor
    except Exception as error:
        sys.unraisablehook = _quiet_lock(sys.unraisablehook)
        if is_allocation_failure(error):
            raise MemoryError(str(error)) from error
        message = ". ".join([str(error), *printed.getvalue().strip().splitlines()[-1:]])
        is_missing = isinstance(error, ModuleNotFoundError)
        remedy = jittor_source.INSTALL if is_missing else "run --mode doctor, and report its output"
        raise UserError(f"Jittor cannot be imported ({message}): {remedy}") from error
    ssl._create_default_https_context = https_context
    sys.excepthook, sys.exit = hook, leave
    sys.setrecursionlimit(recursion)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return jittor


@contextlib.contextmanager
def _without_mpi() -> Iterator[None]:
    """Hide from Jittor that mpirun started this process: Jittor would use MPI itself, and fail."""
    hidden = os.environ.pop(MPI_VARIABLE, None)
    try:
        yield
    finally:
        if hidden is not None:
            os.environ[MPI_VARIABLE] = hidden


def _quiet_lock(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """The hook without the exception of Jittor's Lock.__del__ for a lock that could not be opened."""

    def on_unraisable(unraisable: Any) -> None:
        if getattr(unraisable.object, "__qualname__", "") != "Lock.__del__":
            hook(unraisable)

    return on_unraisable


def _attach_matmul(module: Any) -> str:
    """Use oneDNN for matrix products on the CPU; returns a warning if that fails, else ""."""
    from models.machine import gemm

    with compile_progress(_cache):
        return gemm.attach(module)


def _cache() -> list[Path]:
    """The cache folder of Jittor's current import."""
    utils = sys.modules.get("jittor_utils")
    return [Path(getattr(utils, "cache_path", "") or "/nonexistent")]


def _caches() -> list[Path]:
    """The possible cache folders of another process of this program."""
    return list(toolchain.cache_folder().glob(f"jt*/*/*/*/*/*/{toolchain.cache_name()}-cuda-*/**"))
