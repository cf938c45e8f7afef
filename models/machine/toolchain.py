"""What Jittor needs from the machine, looked at before it is imported: compiler, headers, NumPy."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from data.errors import UserError, listed
from models.machine import isa

THREADS_VARIABLE = "OMP_NUM_THREADS"
MOST_THREADS = 1024  # far above any machine's cores; a million threads end the process
# Jittor turns them into numbers as it is imported.
NUMBER_VARIABLES = ("log_silent", "log_v", "log_sync", "use_parallel_op_compiler", "use_cuda", "debug", "disable_lock")
FLAG_VARIABLES = ("cc_flags", "kernel_flags")  # the user's flags for the compiler, kept behind the program's
# Flags of Jittor that any variable of that name would set. The device is the program's choice; the others change what
# is computed, or lead Jittor to files that are not its own.
FORGOTTEN_VARIABLES = ("use_cuda", "use_cuda_managed_allocator", "device_id", "gdb_attach", "gdb_path", "no_grad")
FORGOTTEN_VARIABLES += ("no_fuse", "amp_reg", "auto_mixed_precision_level", "auto_convert_64_to_32", "check_graph")
FORGOTTEN_VARIABLES += ("cpu_mem_limit", "device_mem_limit", "exclude_pass", "jit_search_kernel", "lazy_execution")
FORGOTTEN_VARIABLES += ("node_order", "reuse_array", "th_mode", "rewrite_op", "gopt_disable", "sync_run", "cc_type")
FORGOTTEN_VARIABLES += ("cache_path", "jittor_path", "python_path", "log_file", "log_vprefix", "trace_py_var")
FORGOTTEN_VARIABLES += ("trace_depth", "trace_var_data", "profiler_enable", "profile_memory_enable", "l1_cache_size")
FORGOTTEN_VARIABLES += ("use_threading", "use_tensorcore", "try_use_32bit_index", "use_stat_allocator", "enable_tuner")
# Bytes that the libraries take of the limits on a process before there is any work, alone and for each thread: measured
# at 1.4 GB of addresses and 0.3 GB of data with one thread, 1.6 and 0.4 with two. With less some end the process.
LEAST_LIMITS = {
    resource.RLIMIT_AS: ("-v", 1_400_000_000, 250_000_000),
    resource.RLIMIT_DATA: ("-d", 300_000_000, 100_000_000),
}
CACHE_NAME = "neus"  # else named after the git branch around site-packages
USUAL_COMPILER = "/usr/bin/g++"
CONFIG_VARIABLE = "NEUS_PYTHON_CONFIG"  # a program that answers as python-config does, where the headers lie elsewhere
NO_HOME = "Jittor compiles into .cache/jittor of the home folder, and there is none that can be written to"
HOME_HINT = "set HOME (or JITTOR_HOME) to a folder of yours"
PYTHON_VERSIONS = ((3, 11), (3, 12))  # 3.13 breaks Jittor's loader of compiled modules


def check() -> None:
    """Raises UserError, naming the package to install, where Jittor could not be built or would compute garbage."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info[:2] not in PYTHON_VERSIONS:
        raise UserError(f"Python {version} does not run Jittor 1.3.11: use Python 3.11 or 3.12")
    if int(importlib.metadata.version("numpy").split(".")[0]) >= 2:
        raise UserError('numpy 2 gives Jittor 1.3.11 wrong numbers without an error: pip install "numpy<2"')
    if shutil.which(compiler()) is None:
        raise UserError(f"the C++ compiler {compiler()} is missing: {compiler_remedy()}")
    if not _compiles(march := " ".join(isa.core_flags())):
        raise UserError(
            f"the C++ compiler {compiler()} does not take {march}: use GCC 11 or newer (cc_path names another), or set "
            f"{isa.VARIABLE}={isa.BASELINE.name}"
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not os.environ.get(CONFIG_VARIABLE) and not (header.is_file() and python_config()):
        raise UserError(
            f"the headers of Python {version} are missing ({header}, python{version}-config): install the package "
            f"python{version}-dev (Debian, Ubuntu: apt install python{version}-dev)"
        )


def check_limits() -> None:
    """Raises UserError for a limit on the process under which not even the libraries can be loaded."""
    for kind, (flag, alone, each) in LEAST_LIMITS.items():
        limit = resource.getrlimit(kind)[0]
        if limit == resource.RLIM_INFINITY:
            continue
        needed = alone + each * (threads(os.environ.get(THREADS_VARIABLE, "")) or len(os.sched_getaffinity(0)))
        if limit < needed:
            raise UserError(
                f"ulimit {flag} {limit // 1024}: leaves this process less memory than its libraries take; raise it to "
                f"{needed // 1024} at least"
            )


def check_environment() -> None:
    """Raises UserError for a variable of the environment that a library would stumble over."""
    threads(os.environ.get(THREADS_VARIABLE, ""))
    isa.level()
    for name in NUMBER_VARIABLES:
        if (text := os.environ.get(name)) is not None and not re.fullmatch("[0-9]{1,9}", text):
            raise UserError(f"the environment variable {name} = {text!r}: must be a whole number; set it or unset it")
    for name in ("cc_path", *FLAG_VARIABLES):
        if os.environ.get(name) and not _compiles(os.environ[name] if name in FLAG_VARIABLES else ""):
            raise UserError(f"{name} = {os.environ[name]!r}: the C++ compiler {compiler()} fails with it; unset {name}")
    if re.search(r"[^\w/.+-]", compiler(), re.ASCII):
        raise UserError(
            f"the C++ compiler {compiler()}: Jittor takes a path of letters, digits and / . _ + - only; set cc_path to "
            "such a one, a link for instance"
        )
    for name in FLAG_VARIABLES:
        given = [flag for flag in os.environ.get(name, "").split() if flag.partition("=")[0] in isa.RELAXATIONS]
        if given:
            raise UserError(
                f"{name} = {os.environ[name]!r}: with {listed(given)} a NaN may pass as a result; remove it there"
            )
    cache = os.environ.get("cache_name", CACHE_NAME)
    if not re.fullmatch(r"[\w.+-]{1,100}", cache, re.ASCII) or set(cache) == {"."}:
        raise UserError(f"the environment variable cache_name = {cache!r}: must be a plain name; set it or unset it")
    try:
        folder = Path(jittor_home()) / ".cache" / "jittor"
        if not folder.is_absolute() or os.environ.get("HOME") == "":  # an empty one leads to the root of the disk
            raise ValueError("HOME is empty or not absolute")
        folder.mkdir(parents=True, exist_ok=True)
        is_open = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no home is known
        raise UserError(f"{NO_HOME} ({getattr(error, 'strerror', None) or error}): {HOME_HINT}") from error
    if not is_open:
        raise UserError(f"{NO_HOME} ({folder} cannot be written to): {HOME_HINT}")
    _check_memory_of_homes(Path.home() / ".cache" / "jittor" / "config.json")


def jittor_home() -> str:
    """Where Jittor is to keep what it compiles: JITTOR_HOME, else the home folder.

    It has to be told: it remembers a JITTOR_HOME that was set once, for one run, for all runs that follow.
    """
    return os.environ.get("JITTOR_HOME") or str(Path.home())


def _check_memory_of_homes(path: Path) -> None:
    """Raises UserError where the file in which Jittor remembers its home is one that it cannot read."""
    try:
        is_readable = not path.exists() or isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError, RecursionError):
        is_readable = False
    if not is_readable:
        raise UserError(f"{path}: Jittor keeps its home folder in it and cannot read it: delete it")


def threads(text: str) -> int:
    """The threads that OMP_NUM_THREADS asks for, a list whose first number counts; 0 for an empty text.

    Raises UserError for another text.
    """
    numbers = [part.strip() for part in text.split(",")]
    if numbers == [""]:
        return 0
    if not all(re.fullmatch("[0-9]{1,6}", number) and 1 <= int(number) <= MOST_THREADS for number in numbers):
        raise UserError(
            f"the environment variable {THREADS_VARIABLE} = {text!r}: must be a whole number in 1..{MOST_THREADS}, or "
            "several with commas between them; set it or unset it"
        )
    return int(numbers[0])


def compiler() -> str:
    """The C++ compiler that Jittor is built with: cc_path, or g++ by a path that does not hang on how PATH names it.

    /bin and /usr/bin are often one folder; a build by the one would be thrown away by the other.
    """
    asked = os.environ.get("cc_path")
    found = shutil.which("g++")
    if asked is not None or found is None:
        return asked or "g++"
    return str(Path(found).parent.resolve() / "g++")


def compiler_remedy() -> str:
    """What is to be done where it is missing or fails."""
    return "unset cc_path" if os.environ.get("cc_path") else "install g++ (Debian, Ubuntu: apt install g++)"


def _compiles(flags: str) -> bool:
    """Whether the C++ compiler takes the flags and compiles; true where it is missing, which `check` tells."""
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
    """Name of Jittor's cache, one for each instruction set, compiler and Python: they would undo each other's build."""
    used = (compiler(), python_config())
    name = f"{CACHE_NAME}-{isa.level().name}"
    if used == (USUAL_COMPILER, str(_config_beside())):
        return name
    return f"{name}-{hashlib.sha256(repr(used).encode()).hexdigest()[:8]}"


def python_config() -> str:
    """Path of pythonX.Y-config, which Jittor asks for include paths, or what the user names; "" where there is none."""
    if named := os.environ.get(CONFIG_VARIABLE):
        return named
    beside = _config_beside()
    if beside.is_file():
        return str(beside)
    return shutil.which(beside.name) or ""


def _config_beside() -> Path:
    """Where pythonX.Y-config lies beside the interpreter; a virtual environment has none of its own."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}-config"
    return Path(sys.base_prefix) / "bin" / name
