"""The environment variables that Jittor reads, set while it is imported.

Afterwards the user's environment is restored: otherwise a child process, or a restart of this one, would take these
values for the user's, choose another CUDA home and compile everything again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from models.machine import isa, libraries, precompiled, toolchain
from models.machine.cuda import start
from models.machine.cuda.home import Home

# Variables that later libraries read, too; they do not change the choice of CUDA home and cache.
STAYING = {toolchain.THREADS_VARIABLE, "OMP_WAIT_POLICY", isa.ONEDNN_VARIABLE, libraries.SEARCHED_FOLDERS}


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
    """Set the variables that Jittor reads. Variables set by the user are kept where that is safe."""
    defaults = {
        "log_silent": "1",
        "cc_path": toolchain.compiler(),
        "cache_name": toolchain.cache_name() if home is None else f"{toolchain.cache_name()}-cuda-{home.key}",
        "use_mpi": "0",
        "use_nccl": "0",
        "use_cutt": "0",
        "use_cutlass": "0",
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
    # Before the user's flags. Without any -O flag Jittor would add -Ofast.
    cc_flags = (precompiled.CORE_OPTIMISATION, *isa.core_flags(), precompiled.include_flag(toolchain.compiler()))
    cuda_flags = "" if home is None else home.flags
    for name, flags in (("cc_flags", (*cc_flags, cuda_flags)), ("kernel_flags", precompiled.operation_flags())):
        os.environ[name] = f" {' '.join(flags)} {os.environ.get(name, '')} "
    for key, value in defaults.items():
        os.environ.setdefault(key, value)
    if not toolchain.threads(os.environ.get(toolchain.THREADS_VARIABLE, "")):
        os.environ[toolchain.THREADS_VARIABLE] = str(len(os.sched_getaffinity(0)))
    for name in toolchain.FORGOTTEN_VARIABLES:
        os.environ.pop(name, None)
    os.environ["JITTOR_HOME"] = toolchain.jittor_home()
    libraries.use_linker(toolchain.compiler(), toolchain.cache_folder())
    os.environ["use_mkl"] = "0"  # otherwise Jittor downloads oneDNN; models.machine.gemm replaces it
    os.environ["nvcc_path"] = "" if home is None else home.nvcc
    if home is not None:
        os.environ.update(start.visible(gpu, os.environ))
