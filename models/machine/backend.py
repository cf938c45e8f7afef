"""The one door to Jittor: prepares the process, imports it, picks the device, and says what it found.

Importing Jittor unprepared downloads oneDNN from its authors' server, crashes where `nvcc` lies on the PATH of a
machine without a GPU, prints, replaces signal handlers and stops verifying TLS certificates. So:

* `select(device, gpu)` chooses the device; nothing is imported yet, and a wrong request is a `UserError`.
* `from models.machine.backend import jt` imports Jittor at the first use, with that choice (`auto` by default).

What Jittor needs from the machine is checked first by `toolchain`; the fast CPU matrix product is attached by `gemm`,
and `cuda` finds out whether there is a card and makes what Jittor builds against. Where that does not work the process
goes on on the CPU, and the start line says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import resource
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from data.errors import UserError, is_allocation_failure
from models.machine import environment, stops, toolchain
from models.machine.available import available_bytes
from models.machine.cuda import start, trial
from models.machine.cuda.conclude import insisted
from models.machine.cuda.home import Home
from models.machine.progress import compile_progress

DEVICES = ("auto", "cpu", "cuda")
ASKED_FOR = "asked for"
MPI_VARIABLE = "OMPI_COMM_WORLD_SIZE"
INSTALL = "pip install -r requirements.txt"
RERUN = "NEUS_RERUN"  # set where the program has started itself again
KERNEL_FLAGS = " --extended-lambda "  # for nvcc: operations are written with lambdas


class RebuiltError(Exception):
    """Jittor has built its own compiler helper anew and ended the import: "please rerun your command"."""


@dataclass(frozen=True)
class DeviceInfo:
    """What the process computes on, as the start line tells it."""

    name: str  # "cpu" or "cuda"
    reason: str  # why this one, where the user may wonder; "" otherwise
    threads: int  # CPU threads of matrix products and native kernels
    memory_gib: float  # memory free for the process: main memory on the CPU, the card's on CUDA
    warning: str  # a sentence the user should read once; "" for none

    def line(self) -> str:
        """One line for the log."""
        because = f" ({self.reason})" if self.reason else ""
        return f"device {self.name}{because}, {self.threads} CPU threads, {self.memory_gib:.1f} GiB of memory free"


@dataclass
class _Choice:
    """The device asked for, before Jittor is imported, and what came of it."""

    device: str = "auto"
    gpu: int = 0
    info: DeviceInfo | None = None
    is_trial: bool = False  # this process finds out whether Jittor runs on the card at all
    home: Home | None = None  # of CUDA, where that is what it runs on


_choice = _Choice()


def select(device: str = "auto", gpu: int = 0) -> None:
    """Choose the device of this process; must come before the first use of `jt`.

    Args:
        device: "auto" (CUDA where it works, else the CPU), "cpu" or "cuda".
        gpu: index of the CUDA card.
    Raises:
        UserError: unknown device, or CUDA asked for where it cannot work.
    """
    if device not in DEVICES:
        raise UserError(f"--device {device}: unknown device; use one of {', '.join(DEVICES)}")
    if _choice.info is not None and device not in ("auto", _choice.info.name):
        raise UserError(f"--device {device}: Jittor already runs on {_choice.info.name} in this process")
    if _choice.info is None:
        toolchain.check_environment()
    if device == "cuda" and _choice.info is None and not (found := cuda_ready(gpu)).home:
        raise UserError(insisted(found.reason))
    _choice.device, _choice.gpu = device, gpu


def device_info() -> DeviceInfo:
    """What Jittor runs on; imports it where that has not happened yet."""
    _load()
    assert _choice.info is not None
    return _choice.info


def resident_bytes() -> int:
    """Resident memory of the process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def __getattr__(name: str) -> Any:  # PEP 562: lets `from models.machine.backend import jt` import Jittor lazily
    """`jt`, the prepared Jittor module."""
    if name == "jt":
        return _load()
    raise AttributeError(name)


def allow_tf32(is_allowed: bool) -> None:
    """Whether matrix products on CUDA may round their factors to 10 bits, Jittor's own and those of the operations."""
    _load().flags.use_tensorcore = int(is_allowed and device_info().name == "cuda")


def device_free_bytes() -> int:
    """Free memory of the card that Jittor runs on; 0 where it cannot be asked."""
    if _choice.home is None:
        return 0
    runtime = ctypes.CDLL(str(_choice.home.folder / "lib64" / "libcudart.so"))  # the one that Jittor has loaded
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    return free.value if runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0 else 0


def card_bytes() -> int:
    """All memory of the card that is, or will be, computed on, as far as is known before; 0 where there is none."""
    home = _choice.home
    if _choice.info is None and _choice.device != "cpu":
        home = cuda_ready(_choice.gpu).home
    return 0 if home is None else home.plan.card.memory


def _load() -> Any:
    """Import Jittor once, prepared; returns the module."""
    if _choice.info is None:
        is_second = os.environ.pop(RERUN, "") == "1"  # no child takes it for itself
        toolchain.check()
        toolchain.check_environment()
        _choice.home, reason = _place()
        try:
            with environment.told(_choice.home, _choice.gpu):
                module = _prepared()
                _choice.info = _told(reason, "" if _choice.home else _attach_matmul(module))
        except RebuiltError:
            _start_again(is_second)
        return module
    return sys.modules["jittor"]


def _prepared() -> Any:
    """Jittor's module on the device that was chosen."""
    module = _import_quietly()
    module.flags.use_cuda = 0 if _choice.home is None else 1
    if _choice.home is not None:
        module.flags.nvcc_flags += KERNEL_FLAGS
        module.flags.use_cuda_host_allocator = 0  # else each array that a step takes waits for all before it
    return module


def _told(reason: str, warning: str) -> DeviceInfo:
    """What the start line tells."""
    is_cpu = _choice.home is None
    return DeviceInfo(
        name="cpu" if is_cpu else "cuda",
        reason=reason if reason != ASKED_FOR else "",
        threads=toolchain.threads(os.environ[toolchain.THREADS_VARIABLE]),
        memory_gib=(available_bytes() if is_cpu else device_free_bytes()) / 2**30,
        warning=warning,
    )


def _start_again(is_second: bool) -> NoReturn:
    """This program anew, in this process; raises RuntimeError in a trial and UserError where it was so already."""
    if _choice.is_trial:
        raise RuntimeError(trial.AGAIN)
    if is_second:
        raise UserError(f"Jittor keeps rebuilding itself: remove {_cache_folder()} and try again")
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {RERUN: "1"})


def cuda_ready(gpu: int) -> start.Ready:
    """The CUDA home for card `gpu`, made where need be, or why there is none."""
    return start.ready(gpu, _cache_folder(), toolchain.compiler())


def _place() -> tuple[Home | None, str]:
    """The CUDA home to run with, or None for the CPU; and why, where that may be wondered about.

    Raises UserError where CUDA was asked for and does not work.
    """
    if _choice.device == "cpu":
        return None, ASKED_FOR
    found = cuda_ready(_choice.gpu)
    home, reason = found.home, found.reason
    if home is not None and not _choice.is_trial and (words := _trial(home)):
        home, reason = None, f"{found.home.plan.card.words} is not used, Jittor does not run on it, {words}"
    if home is None and _choice.device == "cuda":
        raise UserError(insisted(reason))
    return home, "" if home else reason


def _trial(home: Home) -> str:
    """Why Jittor does not run on the card, "" where it does; tried once for each home, by which Jittor is compiled."""
    with compile_progress(_caches):
        return trial.failure(home, try_cuda, _choice.gpu)


def try_cuda(report: Callable[[Any], None], gpu: int) -> None:
    """The task of a process that may come to grief: import Jittor on the card and compute a little.

    Raises RuntimeError where the result is wrong, and what Jittor raises.
    """
    _choice.device, _choice.gpu, _choice.is_trial = "cuda", gpu, True
    module = _load()
    values = module.ones((64, 32))
    found = (module.matmul(values, values.transpose()) + 1.0).sum()
    if float(found.item()) != 64 * 64 * 33.0:
        raise RuntimeError(f"a sum that has to be {64 * 64 * 33} is {found.item()}")


def _import_quietly() -> Any:
    """`import jittor`, with its prints held back and its changes to the process undone."""
    https_context, hook, leave = ssl._create_default_https_context, sys.excepthook, sys.exit
    recursion = sys.getrecursionlimit()
    printed = io.StringIO()
    try:
        with compile_progress(_cache), contextlib.redirect_stdout(printed), _without_mpi(), stops.unheard():
            import jittor
    except SystemExit:
        raise RebuiltError from None
    except Exception as error:
        sys.unraisablehook = _quiet_lock(sys.unraisablehook)
        if is_allocation_failure(error):
            raise MemoryError(str(error)) from error
        said = ". ".join([str(error), *printed.getvalue().strip().splitlines()[-1:]])
        remedy = (
            INSTALL if isinstance(error, ModuleNotFoundError) else "run --mode doctor, and report it with its lines"
        )
        raise UserError(f"Jittor cannot be imported ({said}): {remedy}") from error
    ssl._create_default_https_context = https_context
    sys.excepthook, sys.exit = hook, leave
    sys.setrecursionlimit(recursion)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return jittor


@contextlib.contextmanager
def _without_mpi() -> Iterator[None]:
    """Hide that mpirun has started this process: Jittor takes that for an order to use MPI itself, and fails."""
    hidden = os.environ.pop(MPI_VARIABLE, None)
    try:
        yield
    finally:
        if hidden is not None:
            os.environ[MPI_VARIABLE] = hidden


def _quiet_lock(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """The hook without what Jittor's Lock says of itself, as it goes, where it could not be opened."""

    def heard(unraisable: Any) -> None:
        if getattr(unraisable.object, "__qualname__", "") != "Lock.__del__":
            hook(unraisable)

    return heard


def _attach_matmul(module: Any) -> str:
    """Route CPU matrix products to oneDNN; returns the warning of a fallback, "" without one."""
    from models.machine import gemm

    with compile_progress(_cache):
        return gemm.attach(module)


def _cache_folder() -> Path:
    """Where Jittor keeps all that it compiles, and CUDA homes lie."""
    return Path(toolchain.jittor_home()) / ".cache" / "jittor"


def _cache() -> list[Path]:
    """Where Jittor, once its import has begun, compiles itself into."""
    utils = sys.modules.get("jittor_utils")
    return [Path(getattr(utils, "cache_path", "") or "/nonexistent")]


def _caches() -> list[Path]:
    """The same of another process of this program: it may be any."""
    return list(_cache_folder().glob(f"jt*/*/*/*/*/*/{toolchain.cache_name()}-cuda-*/**"))
