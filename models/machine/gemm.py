"""Fast float32 matrix products on the CPU: Jittor's oneDNN operator, with the library of a PyPI wheel.

Jittor contains the source of an operator `mkl_matmul`, which is used for all 2-D float32 products and their gradients
once it is registered, but it downloads oneDNN for it. Here it uses the library in the wheel `onednn-cpu-gomp`, which
has no headers: `csrc/dnnl.hpp` looks up the one function that the operator calls.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

from data.io.files import write_atomically
from models.machine import toolchain

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


def attach(jittor: Any) -> str:
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
        operators = jittor.compile_custom_ops([f"{source}.cc", f"{source}.h"], extra_flags=f' -I"{headers}" ')
    except (OSError, RuntimeError, AttributeError) as error:
        return SLOW_MATMUL_WARNING.format(reason=str(error).splitlines()[0])
    jittor.compile_extern.mkl_ops = operators  # keeps the module alive as long as Jittor
    return ""
