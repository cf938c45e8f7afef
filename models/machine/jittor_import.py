"""The only import of Jittor: prepares the process, imports Jittor, selects the device, and reports compilation.

A plain `import jittor` downloads oneDNN from its authors' server, crashes if `nvcc` is on the PATH of a machine without
a GPU, prints, replaces signal handlers and disables the verification of TLS certificates. Therefore:

* `select(device, gpu)` chooses the device; nothing is imported yet, and an invalid choice is a `UserError`.
* `from models.machine.backend import jt` imports Jittor at the first use, with that choice (`auto` by default).

`toolchain` checks Jittor's requirements first, and `cuda` detects GPUs and makes the CUDA home that Jittor builds
against. If that fails, the CPU is used, and the device line says why.

Matrix products on the CPU: Jittor contains the source of an operator `mkl_matmul`, which is used for all 2-D float32
products and their gradients once it is registered, but it downloads oneDNN for it. Here it uses the library in the
wheel `onednn-cpu-gomp`, which has no headers: `csrc/dnnl.hpp` looks up the one function that the operator calls.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import importlib.metadata
import io
import os
import signal
import ssl
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from data.errors import UserError, is_allocation_failure
from data.io.files import write_atomically
from data.io.streams import complain, is_terminal, redraw
from models.machine import environment, jittor_source, toolchain
from models.machine.available import available_bytes
from models.machine.cuda.choice import insisted
from models.machine.cuda.home import Home, Ready, failure, ready
from models.machine.device import DeviceInfo, choice, device_free_bytes
from models.machine.ranks import here
from models.requests import DEVICES

# The number of object files of Jittor's core (1.3.11, CPU), for the progress line.
CORE_OBJECT_FILES = 29
INTERVAL_SECONDS = 2.0
COMPILES_ITSELF = "Jittor compiles itself; this happens once, and takes a minute or two."
WAITS_FOR_OTHERS = (
    "another process compiles Jittor, which this one waits for; this happens once, and takes a minute or two."
)


@dataclass(frozen=True)
class Word:
    """A progress message."""

    text: str
    is_passing: bool = False  # shown on a terminal only, where the next message overwrites it
    is_last: bool = False  # on a terminal, overwrites a passing one


def show(word: Word) -> None:
    """Print the message on stderr."""
    if is_terminal() and (word.is_passing or word.is_last):
        redraw(word.text, end="\n" if word.is_last else "")
    elif not word.is_passing:
        complain(word.text)


_report_word: Callable[[Word], None] = show


def hand_on(report: Callable[[Word], None]) -> None:
    """Pass all later messages of this process to `report` instead of stderr; for child processes."""
    global _report_word
    _report_word = report


@contextlib.contextmanager
def compile_progress(caches: Callable[[], Sequence[Path]]) -> Iterator[None]:
    """Print progress on stderr if Jittor compiles itself while the body runs.

    `caches` returns the folders into which Jittor may compile; it is called repeatedly.
    """
    done = threading.Event()
    thread = threading.Thread(target=_report, args=(done, caches), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _report(done: threading.Event, caches: Callable[[], Sequence[Path]]) -> None:
    """Body of the progress thread; prints nothing if nothing is compiled."""
    begin, has_reported = time.time(), False
    while not done.wait(INTERVAL_SECONDS):
        folders = [folder for cache in caches() if (folder := cache / "obj_files").is_dir()]
        count = sum(entry.stat().st_mtime >= begin for folder in folders for entry in os.scandir(folder))
        elapsed = time.time() - begin
        if count == 0:
            continue
        if not has_reported:
            # This process compiles if it holds the lock of Jittor's cache, or has not imported it, for a child does.
            locks = sys.modules.get("jittor_utils.lock")
            is_own = locks is None or locks.jittor_lock.is_locked
            _report_word(Word(COMPILES_ITSELF if is_own else WAITS_FOR_OTHERS))
        _report_word(
            Word(f"  {min(count, CORE_OBJECT_FILES)}/{CORE_OBJECT_FILES} files, {elapsed:.0f} s ", is_passing=True)
        )
        has_reported = True
    if has_reported:
        _report_word(Word(f"  compiled in {time.time() - begin:.0f} s", is_last=True))


def _end_compilers() -> None:
    """End the processes in which Jittor compiled itself: they stay, and each would report a later Ctrl-C."""
    import jittor_utils

    if jittor_utils.pool_size > 0:
        atexit.unregister(jittor_utils.pool_cleanup)
        jittor_utils.pool_cleanup()
        jittor_utils.pool_size = 0  # Jittor starts others if it needs them


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
    if device == "cuda" and choice.info is None and not (result := cuda_ready(gpu)).home:
        raise UserError(insisted(result.reason))
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
        choice.info = _describe(reason, "" if choice.home else attach_onednn(module))
        _end_compilers()
    return module


def _prepared() -> Any:
    """Import Jittor and set its device."""
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


def cuda_ready(gpu: int) -> Ready:
    """The CUDA home for GPU `gpu`, made if needed, or the reason why there is none."""
    return ready(gpu, toolchain.cache_folder(), toolchain.compiler())


@cache
def _place(device: str, gpu: int) -> tuple[Home | None, str]:
    """The CUDA home, or None for the CPU with the reason.

    Raises UserError if CUDA was requested and does not work.
    """
    if device == "cpu":
        return None, ASKED_FOR
    result = cuda_ready(gpu)
    home, reason = result.home, result.reason
    if home is not None and not choice.is_trial and (words := _trial(home)):
        reason, home = f"{home.plan.gpu.words} is not used because Jittor fails on it, {words}", None
    if home is None and device == "cuda":
        raise UserError(insisted(reason))
    return home, "" if home else reason


def _trial(home: Home) -> str:
    """Why Jittor fails on the GPU, "" if it works; tried once per home, which also compiles Jittor."""
    pattern = f"jt*/*/*/*/*/*/{toolchain.cache_name()}-cuda-*/**"  # cache folders of another process of this program
    with compile_progress(lambda: list(toolchain.cache_folder().glob(pattern))):
        return failure(home, try_cuda, choice.gpu)


def try_cuda(report: Callable[[Any], None], gpu: int) -> None:
    """Import Jittor on the GPU and compute a small product. A task for a child process, which may crash.

    Raises RuntimeError for a wrong result, and the exceptions of Jittor.
    """
    choice.device, choice.gpu, choice.is_trial = "cuda", gpu, True
    module = load()
    values = module.ones((64, 32))
    total = (module.matmul(values, values.transpose()) + 1.0).sum()
    if float(total.item()) != 64 * 64 * 33.0:
        raise RuntimeError(f"a sum is {total.item()} and must be {64 * 64 * 33}")


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


def _cache() -> list[Path]:
    """The cache folder of Jittor's current import."""
    utils = sys.modules.get("jittor_utils")
    return [Path(getattr(utils, "cache_path", "") or "/nonexistent")]


ONEDNN_PACKAGE = "onednn-cpu-gomp"
SLOW_MATMUL_WARNING = (
    f"matrix products fall back to plain loops, about 13 times slower: {{reason}} (the package {ONEDNN_PACKAGE} "
    "provides oneDNN on x86-64 Linux)"
)


def library_path() -> Path | None:
    """The wheel's libdnnl.so; None if the wheel is not installed."""
    try:
        files = importlib.metadata.files(ONEDNN_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for entry in files:
        path = Path(entry.locate()).resolve()
        if path.name.startswith("libdnnl.so") and (path.parent / "libdnnl.so").is_file():
            return path
    return None


def _shared_headers() -> Path:
    """The folder of `dnnl.hpp` in Jittor's cache, named by its contents: checkouts share the compiled operator."""
    header = (Path(__file__).parent / "csrc" / "dnnl.hpp").read_bytes()
    folder = toolchain.cache_folder() / f"dnnl-{hashlib.sha256(header).hexdigest()[:16]}"
    if not (folder / "dnnl.hpp").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "dnnl.hpp", header)
    return folder


def attach_onednn(jittor: Any) -> str:
    """Register `mkl_matmul` with the imported Jittor module.

    Returns:
        "" on success, else a warning about the slow fallback.
    """
    library = library_path()
    if library is None:
        return SLOW_MATMUL_WARNING.format(reason=f"{ONEDNN_PACKAGE} is not installed")
    try:
        ctypes.CDLL(str(library)).dnnl_sgemm  # noqa: B018, the operator looks it up
        headers = _shared_headers()
        source = Path(jittor.__file__).parent / "extern" / "mkl" / "ops" / "mkl_matmul_op"
        with compile_progress(_cache):
            operators = jittor.compile_custom_ops([f"{source}.cc", f"{source}.h"], extra_flags=f' -I"{headers}" ')
    except (OSError, RuntimeError, AttributeError) as error:
        return SLOW_MATMUL_WARNING.format(reason=str(error).splitlines()[0])
    jittor.compile_extern.mkl_ops = operators  # keeps the module alive as long as Jittor
    return ""
