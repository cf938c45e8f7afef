"""The environment variables that Jittor reads, set while it is imported.

Afterwards the user's environment is restored: otherwise a child process, or a restart of this one, would take these
values for the user's, choose another CUDA home and compile everything again.

Libraries that Jittor compiles are linked under another name and moved into place: Jittor links a library in its place,
and a process that is killed leaves its compiler alive. Precompiled headers save two thirds of the compilation of an
operation.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from data.io.files import write_atomically
from models.machine import isa, jittor_source, toolchain
from models.machine.cuda.home import Home, visible

SEARCHED_FOLDERS = "COMPILER_PATH"  # where GCC and Clang look first for the linker
# Variables that later libraries read, too; they do not change the choice of CUDA home and cache.
STAYING = {toolchain.THREADS_VARIABLE, "OMP_WAIT_POLICY", isa.ONEDNN_VARIABLE, SEARCHED_FOLDERS}
LINKER = """#!/bin/sh
# Links under another name, so that a library is complete or missing.
for argument; do
    [ "$before" = -o ] && output=$argument
    before=$argument
done
[ -z "$output" ] && exec {linker} "$@"
{linker} "$@" -o "$output.$$" && exec mv -f "$output.$$" "$output"
rm -f "$output.$$"
exit 1
"""
# The headers that Jittor's own headers include.
STANDARD_HEADERS = (
    *("algorithm", "chrono", "cmath", "cstring", "fstream", "functional", "iomanip", "iostream", "limits", "map"),
    *("memory", "mutex", "queue", "random", "set", "sstream", "string", "thread", "unordered_map", "unordered_set"),
    "vector",
)
# Jittor's headers that every operation includes. The macro JIT, which each operation defines, changes two of them.
OPERATION_HEADERS = ("var.h", "op.h", "fused_op.h", "ops/op_register.h")
# In addition, those that many of Jittor's own files include.
CORE_HEADERS = ("executor.h", "opt/pass_manager.h", "var_holder.h")
OPERATION_MACRO = "-DJIT"
# The flags that Jittor 1.3.11 passes to the compiler; -march=native only on x86-64.
JITTOR_FLAGS = ("-Wall", "-Wno-unknown-pragmas", "-std=c++14", "-fPIC", "-march=native", "-fdiagnostics-color=always")
# Jittor's own files process a graph of small objects: -O1 is as fast as -O2 there and compiles faster.
CORE_OPTIMISATION = "-O1"


@contextlib.contextmanager
def jittor_environment(home: Home | None, gpu: int) -> Iterator[None]:
    """Set the variables for GPU `gpu` with a CUDA home, or for the CPU, while the body runs."""
    given = dict(os.environ)
    try:
        tell(home, gpu)
        yield
    finally:  # also restores variables that Jittor has changed
        for name in {*given, *os.environ} - STAYING:
            if name not in given:
                del os.environ[name]
            elif os.environ.get(name) != given[name]:
                os.environ[name] = given[name]


def tell(home: Home | None, gpu: int = 0) -> None:
    """Set the variables that Jittor reads."""
    for name in toolchain.FORGOTTEN_VARIABLES:
        os.environ.pop(name, None)
    defaults = {
        "log_silent": "1",
        "cc_path": toolchain.compiler(),
        "cache_name": toolchain.cache_name() if home is None else f"{toolchain.cache_name()}-cuda-{home.key}",
        "use_mpi": "0",
        "use_nccl": "0",
        "use_cutt": "0",
        "use_cutlass": "0",
        "use_parallel_op_compiler": "0",  # its threads call Python without the lock; it prepares each launch twice
        "conv_opt": "1",  # there are no convolutions: cuDNN is not needed, and its version 9 breaks the import
        # Waiting threads sleep: on a shared machine, spinning ones slow down the others.
        "OMP_WAIT_POLICY": "passive",
        "FIX_TORCH_ERROR": "0",  # otherwise Jittor imports torch if installed, which loads another CUDA
        "python_config_path": toolchain.python_config(),
        "JPY_PARENT_PID": "0",  # as in a notebook: otherwise a Ctrl-C during the import ends the process
    }
    level = isa.level()
    if level != isa.highest():
        defaults[isa.ONEDNN_VARIABLE] = level.onednn
    # Without any -O flag Jittor would add -Ofast.
    cc_flags = (CORE_OPTIMISATION, *isa.core_flags(), include_flag(toolchain.compiler(), is_cuda=home is not None))
    cuda_flags = "" if home is None else home.flags
    for name, flags in (("cc_flags", (*cc_flags, cuda_flags)), ("kernel_flags", operation_flags())):
        os.environ[name] = f" {' '.join(flags)}  "  # this text is in the keys of Jittor's cache
    for key, value in defaults.items():
        os.environ.setdefault(key, value)
    if not toolchain.threads(os.environ.get(toolchain.THREADS_VARIABLE, "")):
        os.environ[toolchain.THREADS_VARIABLE] = str(len(os.sched_getaffinity(0)))
    os.environ["JITTOR_HOME"] = toolchain.jittor_home()
    use_linker(toolchain.compiler(), toolchain.cache_folder())
    os.environ["use_mkl"] = "0"  # otherwise Jittor downloads oneDNN; models.machine.backend replaces it
    os.environ["nvcc_path"] = "" if home is None else home.nvcc
    if home is not None:
        os.environ.update(visible(gpu, os.environ))


def use_linker(compiler: str, caches: Path) -> None:
    """Make the compilers that this process starts link atomically, with a linker in a folder below `caches`.

    Without effect where the compiler has no linker of its own, or the folder cannot be written.
    """
    given = os.environ.pop(SEARCHED_FOLDERS, "").split(os.pathsep)
    folders = [folder for folder in given if folder and Path(folder).parent != caches]
    if folders:
        os.environ[SEARCHED_FOLDERS] = os.pathsep.join(folders)
    if ours := _linker_folder(compiler, caches):
        os.environ[SEARCHED_FOLDERS] = os.pathsep.join([ours, *folders])


def _linker_folder(compiler: str, caches: Path) -> str:
    """The folder with the linker for the compiler, made if needed; "" if that is impossible."""
    try:
        output = subprocess.run([compiler, "-print-prog-name=ld"], capture_output=True, text=True, check=True).stdout
        linker = shutil.which(output.strip())
        if linker is None:
            return ""
        text = LINKER.format(linker=linker).encode()
        ours = caches / f"linker-{hashlib.sha256(text).hexdigest()[:16]}" / "ld"
        if not (os.access(ours, os.X_OK) and ours.read_bytes() == text):
            ours.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(ours, text)
            ours.chmod(0o755)
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(ours.parent)


def common_flags() -> tuple[str, ...]:
    """The flags under which Jittor compiles itself and every operation."""
    given = JITTOR_FLAGS if isa.level().march else tuple(flag for flag in JITTOR_FLAGS if flag != "-march=native")
    return (*given, CORE_OPTIMISATION, *isa.core_flags())


def variants() -> dict[str, tuple[str, ...]]:
    """The additional flags of Jittor's own files and of operations."""
    return {"core": (), "operations": (*operation_flags(), "-fopenmp")}


def operation_flags() -> tuple[str, ...]:
    """The flags of operations that the program passes to Jittor."""
    return (*isa.operation_flags(), OPERATION_MACRO)


def include_flag(compiler: str, is_cuda: bool = False) -> str:
    """The flag that makes `compiler` include the header, which is compiled first if needed.

    Returns "" if that is impossible: a compiler other than GCC, a home that is not writable or has a space in its path.
    """
    if not Path(compiler).name.startswith("g++"):
        return ""
    text = "".join(f"#include <{name}>\n" for name in STANDARD_HEADERS) + isa.VECTOR_FUNCTIONS
    of_operations, of_core = (
        "".join(f'#include "{name}"\n' for name in names) for names in (OPERATION_HEADERS, CORE_HEADERS)
    )
    text += f"#ifdef JIT\n{of_operations}"
    text += "#endif\n" if is_cuda else f"#else\n{of_operations}{of_core}#endif\n"  # CUDA's macros change the latter
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        sources = jittor_source.mended(toolchain.cache_folder()) / "jittor" / "src"
        known = (version, text, common_flags(), variants(), str(sources))
        key = hashlib.sha256(repr(known).encode()).hexdigest()[:16]
        folder = toolchain.cache_folder() / f"headers-{key}"
        if not folder.is_dir():
            _build(compiler, text, sources, folder)
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return ""
    return "" if " " in str(folder) else f"-include {folder}/prefix.h"


def _build(compiler: str, text: str, sources: Path, folder: Path) -> None:
    """Compile all variants of the header in parallel into `folder`, which is created atomically."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        header, compiled = scratch / "prefix.h", scratch / "prefix.h.gch"  # where GCC looks for it
        header.write_text(text, encoding="utf-8")
        compiled.mkdir()
        processes = [
            subprocess.Popen(
                [compiler, *common_flags(), *flags, f"-I{sources}", "-x", "c++-header", header, "-o", compiled / name]
            )
            for name, flags in variants().items()
        ]
        statuses = [process.wait() for process in processes]  # all end before the folder may be removed
        if any(statuses):
            raise RuntimeError(f"{compiler} cannot compile {header}")
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
