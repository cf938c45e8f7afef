"""What Jittor reads of the environment, said for as long as it is imported.

Afterwards the environment is the user's again: a process that this one starts, or becomes, must not take what was said
to Jittor for the user's wishes, come to another CUDA home by it and compile everything anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from models.machine import isa, precompiled, toolchain
from models.machine.cuda import start
from models.machine.cuda.home import Home

# What libraries that are loaded later read too; whoever finds them set comes to the same home and cache.
STAYING = {toolchain.THREADS_VARIABLE, "OMP_WAIT_POLICY", isa.ONEDNN_VARIABLE}


@contextlib.contextmanager
def told(home: Home | None, gpu: int) -> Iterator[None]:
    """While the body runs, Jittor finds what it needs for card `gpu` of a CUDA home, or for the CPU."""
    given = dict(os.environ)
    try:
        tell(home, gpu)
        yield
    finally:  # what Jittor has set itself goes too
        for name in {*given, *os.environ} - STAYING:
            if name not in given:
                del os.environ[name]
            elif os.environ.get(name) != given[name]:
                os.environ[name] = given[name]


def tell(home: Home | None, gpu: int = 0) -> None:
    """Set what Jittor reads while it is imported. A variable the user has set is left alone where it cannot harm."""
    defaults = {
        "log_silent": "1",
        "cc_path": toolchain.compiler(),
        "cache_name": toolchain.cache_name() if home is None else f"{toolchain.cache_name()}-cuda-{home.key}",
        "use_mpi": "0",
        "use_nccl": "0",
        "use_cutt": "0",
        "use_cutlass": "0",
        "conv_opt": "1",  # no convolution here: cuDNN is not needed, and version 9 of it breaks the import
        # Threads that wait for work sleep: on a shared machine spinning ones hold up those that have some.
        "OMP_WAIT_POLICY": "passive",
        "FIX_TORCH_ERROR": "0",  # else torch is imported where it is installed, with a CUDA of its own
        "python_config_path": toolchain.python_config(),
        "JPY_PARENT_PID": "0",  # as in a notebook: else Jittor ends the process at a Ctrl-C while it is imported
    }
    level = isa.level()
    if level != isa.highest():
        defaults[isa.ONEDNN_VARIABLE] = level.onednn
    # Before the user's: without a flag -O among them Jittor would add -Ofast.
    cc_flags = (precompiled.CORE_OPTIMISATION, *isa.core_flags(), precompiled.include_flag(toolchain.compiler()))
    cuda_flags = "" if home is None else home.flags
    for name, flags in (("cc_flags", (*cc_flags, cuda_flags)), ("kernel_flags", isa.operation_flags())):
        os.environ[name] = f" {' '.join(flags)} {os.environ.get(name, '')} "
    for key, value in defaults.items():
        os.environ.setdefault(key, value)
    if not toolchain.threads(os.environ.get(toolchain.THREADS_VARIABLE, "")):
        os.environ[toolchain.THREADS_VARIABLE] = str(len(os.sched_getaffinity(0)))
    for name in toolchain.FORGOTTEN_VARIABLES:
        os.environ.pop(name, None)
    os.environ["JITTOR_HOME"] = toolchain.jittor_home()
    os.environ["use_mkl"] = "0"  # else oneDNN is downloaded from its authors' server; models.machine.gemm replaces it
    os.environ["nvcc_path"] = "" if home is None else home.nvcc
    if home is not None:
        os.environ.update(start.visible(gpu, os.environ))
