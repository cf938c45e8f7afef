"""Checks of Jittor's requirements before it is imported: Python, compiler, headers, NumPy, environment."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from data.errors import UserError
from models.machine import isa

THREADS_VARIABLE = "OMP_NUM_THREADS"
MOST_OMP_THREADS = 1024  # more than the cores of any machine; a million threads would end the process
# Environment variables that would set flags of Jittor. The program chooses the device; the other flags change results,
# or make Jittor read foreign files.
FORGOTTEN_VARIABLES = re.findall(
    r"\w+",
    """
    log_silent log_v log_sync use_parallel_op_compiler debug disable_lock cc_flags kernel_flags use_cuda
    use_cuda_managed_allocator device_id gdb_attach gdb_path no_grad no_fuse amp_reg auto_mixed_precision_level
    auto_convert_64_to_32 cpu_mem_limit device_mem_limit exclude_pass jit_search_kernel lazy_execution node_order
    reuse_array th_mode rewrite_op gopt_disable sync_run cc_type cache_path jittor_path python_path log_file
    log_vprefix trace_py_var trace_depth trace_var_data profiler_enable profile_memory_enable l1_cache_size
    use_threading use_tensorcore try_use_32bit_index use_stat_allocator enable_tuner check_graph use_sfrl_allocator
    use_nfef_allocator use_temp_allocator
    """,
)
# Bytes that the libraries need, in total and per thread: measured at 1.4 GB of address space and 0.3 GB of data with
# one thread, 1.6 and 0.4 with two. With less, some libraries end the process.
LEAST_LIMITS = {
    resource.RLIMIT_AS: ("-v", 1_400_000_000, 250_000_000),
    resource.RLIMIT_DATA: ("-d", 300_000_000, 100_000_000),
}
CACHE_NAME = "neus"  # Jittor's default is the name of the git branch around site-packages
USUAL_COMPILER = "/usr/bin/g++"
CONFIG_VARIABLE = "NEUS_PYTHON_CONFIG"  # a replacement for python-config, for headers in another folder
NO_HOME = "Jittor compiles into .cache/jittor of the home folder, which is not writable"
HOME_HINT = "set HOME (or JITTOR_HOME) to a folder of yours"
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)


def check() -> None:
    """Raises UserError, naming the remedy, if Jittor cannot be built or would compute wrong results."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        raise UserError(f"Python {version} is not supported: use Python 3.11 to 3.14")
    if shutil.which(compiler()) is None:
        raise UserError(f"the C++ compiler {compiler()} is missing: {compiler_remedy()}")
    if not _compiles(march := " ".join(isa.core_flags())):
        raise UserError(
            f"the C++ compiler {compiler()} does not support {march}: use GCC 11 or newer (set cc_path), or set "
            f"{isa.VARIABLE}={isa.BASELINE.name}"
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not os.environ.get(CONFIG_VARIABLE) and not (header.is_file() and python_config()):
        raise UserError(
            f"the headers of Python {version} are missing ({header}, python{version}-config): install the package "
            f"python{version}-dev (Debian, Ubuntu: apt install python{version}-dev)"
        )


def check_limits() -> None:
    """Raises UserError for memory limits (ulimit) that are too low to load the libraries."""
    for kind, (flag, alone, each) in LEAST_LIMITS.items():
        limit = resource.getrlimit(kind)[0]
        if limit == resource.RLIM_INFINITY:
            continue
        needed = alone + each * (threads(os.environ.get(THREADS_VARIABLE, "")) or len(os.sched_getaffinity(0)))
        if limit < needed:
            raise UserError(
                f"ulimit {flag} {limit // 1024}: is too low to load the libraries; raise it to at least "
                f"{needed // 1024}"
            )


def check_environment() -> None:
    """Raises UserError for environment variables with values that a library cannot handle."""
    threads(os.environ.get(THREADS_VARIABLE, ""))
    isa.level()
    if os.environ.get("cc_path") and not _compiles(""):
        raise UserError(f"cc_path = {os.environ['cc_path']!r}: this C++ compiler fails; unset cc_path")
    if re.search(r"[^\w/.+-]", compiler(), re.ASCII):
        raise UserError(
            f"the C++ compiler {compiler()}: Jittor supports only paths of letters, digits and / . _ + -; set cc_path "
            "to such a path, for example a link"
        )
    cache = os.environ.get("cache_name", CACHE_NAME)
    if not re.fullmatch(r"[\w.+-]{1,100}", cache, re.ASCII) or set(cache) == {"."}:
        raise UserError(f"the environment variable cache_name = {cache!r}: must be a plain name; set it or unset it")
    try:
        folder = cache_folder()
        if not folder.is_absolute() or os.environ.get("HOME") == "":  # an empty HOME means the root folder
            raise ValueError("HOME is empty or not absolute")
        folder.mkdir(parents=True, exist_ok=True)
        is_open = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no home is known
        raise UserError(f"{NO_HOME} ({getattr(error, 'strerror', None) or error}): {HOME_HINT}") from error
    if not is_open:
        raise UserError(f"{NO_HOME} ({folder} cannot be written to): {HOME_HINT}")


def jittor_home() -> str:
    """The folder of Jittor's cache: JITTOR_HOME, else the home folder."""
    return os.environ.get("JITTOR_HOME") or str(Path.home())


def cache_folder() -> Path:
    """The folder of Jittor's caches, of the linkers and of the CUDA homes."""
    return Path(jittor_home()) / ".cache" / "jittor"


def threads(text: str) -> int:
    """The first number in the list OMP_NUM_THREADS; 0 for an empty text.

    Raises UserError for another text.
    """
    numbers = [part.strip() for part in text.split(",")]
    if numbers == [""]:
        return 0
    if not all(re.fullmatch("[0-9]{1,6}", number) and 1 <= int(number) <= MOST_OMP_THREADS for number in numbers):
        raise UserError(
            f"the environment variable {THREADS_VARIABLE} = {text!r}: must be a whole number in 1..{MOST_OMP_THREADS}, "
            "or several with commas between them; set it or unset it"
        )
    return int(numbers[0])


def compiler() -> str:
    """The C++ compiler for Jittor: cc_path, or g++ with the folder of its path resolved.

    /bin and /usr/bin are often the same folder, but Jittor rebuilds itself when the path of the compiler changes.
    """
    chosen = os.environ.get("cc_path")
    default = shutil.which("g++")
    if chosen is not None or default is None:
        return chosen or "g++"
    return str(Path(default).parent.resolve() / "g++")


def compiler_remedy() -> str:
    """The remedy for a compiler that is missing or fails."""
    return "unset cc_path" if os.environ.get("cc_path") else "install g++ (Debian, Ubuntu: apt install g++)"


def _compiles(flags: str) -> bool:
    """Whether the C++ compiler accepts the flags; True if it is missing, which `check` reports."""
    command = shutil.which(compiler())
    if command is None:
        return True
    call = [command, *flags.split(), "-x", "c++", "-E", "-P", "-"]
    try:
        made = subprocess.run(call, input="whole\n", capture_output=True, text=True, check=False, timeout=60)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return made.returncode == 0 and "whole" in made.stdout


def cache_name() -> str:
    """The name of Jittor's cache: one for each instruction set, compiler and Python, which need separate builds."""
    used = (compiler(), python_config())
    name = f"{CACHE_NAME}-{isa.level().name}"
    if used == (USUAL_COMPILER, str(config_beside())):
        return name
    return f"{name}-{hashlib.sha256(repr(used).encode()).hexdigest()[:8]}"


def python_config() -> str:
    """The path of pythonX.Y-config, or of the user's replacement; "" if there is none. Jittor runs it."""
    if named := os.environ.get(CONFIG_VARIABLE):
        return named
    expected = config_beside()
    if expected.is_file():
        return str(expected)
    return shutil.which(expected.name) or ""


def config_beside() -> Path:
    """The expected path of pythonX.Y-config, in the folder of the base interpreter (not the virtual environment)."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}-config"
    return Path(sys.base_prefix) / "bin" / name
