"""The one door to Jittor: prepares the process, imports it, picks the device, and says what it found.

Importing Jittor unprepared downloads oneDNN from its authors' server, crashes where `nvcc` lies on the PATH of a
machine without a GPU, prints, replaces signal handlers and stops verifying TLS certificates. So:

* `select(device, gpu)` chooses the device; nothing is imported yet, and a wrong request is a `UserError`.
* `from models.machine.backend import jt` imports Jittor at the first use, with that choice (`auto` by default).

What Jittor needs from the machine is checked first by `toolchain`; the fast CPU matrix product is attached by `gemm`.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import UserError, is_allocation_failure
from data.io.streams import complain, is_watched, redraw
from models.machine import precompiled, toolchain
from models.machine.available import available_bytes

DEVICES = ("auto", "cpu", "cuda")
# A build of Jittor's core leaves this many object files (1.3.11, CPU): the whole of the progress line.
CORE_OBJECT_FILES = 150
PROGRESS_INTERVAL_SECONDS = 2.0


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
    if device == "cuda" and (reason := toolchain.cuda_obstacle()):
        raise UserError(f"--device cuda: {reason}; use --device cpu")
    if _choice.info is None:
        toolchain.check_environment()
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


def _load() -> Any:
    """Import Jittor once, prepared; returns the module."""
    if _choice.info is None:
        toolchain.check()
        toolchain.check_environment()
        obstacle = "asked for" if _choice.device == "cpu" else toolchain.cuda_obstacle()
        _set_environment(use_cuda=not obstacle)
        module = _import_quietly()
        warning = _attach_matmul(module) if obstacle else ""
        module.flags.use_cuda = 0 if obstacle else 1
        _choice.info = DeviceInfo(
            name="cpu" if obstacle else "cuda",
            reason=obstacle if obstacle != "asked for" else "",
            threads=toolchain.threads(os.environ[toolchain.THREADS_VARIABLE]),
            memory_gib=(available_bytes() if obstacle else toolchain.cuda_free_bytes()) / 2**30,
            warning=warning,
        )
        return module
    return sys.modules["jittor"]


def _set_environment(use_cuda: bool) -> None:
    """What Jittor reads while it is imported; a variable the user has set is left alone where it cannot harm."""
    defaults = {
        "log_silent": "1",
        "cc_path": toolchain.compiler(),
        "cache_name": toolchain.cache_name(),
        "use_mpi": "0",
        "use_nccl": "0",
        "use_cutt": "0",
        "use_cutlass": "0",
        "conv_opt": "1",  # no convolution here: cuDNN is not needed, and version 9 of it breaks the import
        # Threads that wait for work sleep: on a shared machine spinning ones hold up those that have some.
        "OMP_WAIT_POLICY": "passive",
        "python_config_path": toolchain.python_config(),
    }
    if not use_cuda:
        prefix = precompiled.include_flag(toolchain.compiler())
        defaults["cc_flags"] = f" {' '.join(precompiled.CORE_FLAGS)} {prefix} "
        defaults["kernel_flags"] = f" {' '.join(precompiled.OPERATION_FLAGS)} "
    for key, value in defaults.items():
        os.environ.setdefault(key, value)
    if not toolchain.threads(os.environ.get(toolchain.THREADS_VARIABLE, "")):
        os.environ[toolchain.THREADS_VARIABLE] = str(len(os.sched_getaffinity(0)))
    for name in toolchain.FORGOTTEN_VARIABLES:
        os.environ.pop(name, None)
    os.environ["JITTOR_HOME"] = toolchain.jittor_home()
    os.environ["use_mkl"] = "0"  # else oneDNN is downloaded from its authors' server; models.machine.gemm replaces it
    os.environ["nvcc_path"] = toolchain.nvcc() if use_cuda else ""
    if use_cuda and (_choice.gpu > 0 or "CUDA_VISIBLE_DEVICES" not in os.environ):
        os.environ["CUDA_VISIBLE_DEVICES"] = str(_choice.gpu)


def _import_quietly() -> Any:
    """`import jittor`, with its prints held back and its changes to the process undone."""
    https_context, hook, leave = ssl._create_default_https_context, sys.excepthook, sys.exit
    recursion = sys.getrecursionlimit()
    printed = io.StringIO()
    try:
        with _compile_progress(), contextlib.redirect_stdout(printed):
            import jittor
    except SystemExit:
        # Jittor ends the process after it rebuilt its own compiler helper ("please rerun your command"): do so.
        if os.environ.get("NEUS_RERUN") == "1":
            raise UserError("Jittor keeps rebuilding itself: remove ~/.cache/jittor and try again") from None
        os.environ["NEUS_RERUN"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except Exception as error:
        sys.unraisablehook = _quiet_lock(sys.unraisablehook)
        if is_allocation_failure(error):
            raise MemoryError(str(error)) from error
        detail = (printed.getvalue().strip().splitlines() or [""])[-1]
        raise UserError(f"Jittor cannot be imported: {error}. {detail}".strip()) from error
    ssl._create_default_https_context = https_context
    sys.excepthook, sys.exit = hook, leave
    sys.setrecursionlimit(recursion)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return jittor


def _quiet_lock(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """The hook without what Jittor's Lock says of itself, as it goes, where it could not be opened."""

    def heard(unraisable: Any) -> None:
        if getattr(unraisable.object, "__qualname__", "") != "Lock.__del__":
            hook(unraisable)

    return heard


def _attach_matmul(module: Any) -> str:
    """Route CPU matrix products to oneDNN; returns the warning of a fallback, "" without one."""
    from models.machine import gemm

    with _compile_progress():
        return gemm.attach(module)


@contextlib.contextmanager
def _compile_progress() -> Iterator[None]:
    """While the body runs: if it takes long, say on stderr that Jittor compiles itself once, and how far it is."""
    done = threading.Event()
    thread = threading.Thread(target=_report_compilation, args=(done,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _report_compilation(done: threading.Event) -> None:
    """Body of the progress thread: silent for a warm start."""
    begin, spoke, terminal = time.time(), False, is_watched()
    while not done.wait(PROGRESS_INTERVAL_SECONDS):
        elapsed, count = time.time() - begin, _fresh_object_files(begin)
        if count == 0:
            continue
        if not spoke:
            complain("Jittor compiles itself; this happens once, and takes a minute or two.")
        if terminal:
            redraw(f"  {min(count, CORE_OBJECT_FILES)}/{CORE_OBJECT_FILES} files, {elapsed:.0f} s ")
        spoke = True
    if spoke:
        finished = f"  compiled in {time.time() - begin:.0f} s"
        redraw(finished, end="\n") if terminal else complain(finished)


def _fresh_object_files(since: float) -> int:
    """How many object files Jittor's cache gained since `since` (seconds of the epoch)."""
    utils = sys.modules.get("jittor_utils")
    folder = Path(getattr(utils, "cache_path", "") or "/nonexistent") / "obj_files"
    if not folder.is_dir():
        return 0
    return sum(1 for entry in os.scandir(folder) if entry.stat().st_mtime >= since)
