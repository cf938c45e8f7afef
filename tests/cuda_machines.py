"""Simulated machines with CUDA: drivers, toolkits and file trees for the tests of device selection."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.commands.doctor import Line
from models.machine.cuda import detect
from models.machine.cuda.choice import HEADERS, LIBRARIES, CudaBuild, Driver, Facts, Gpu, Toolkit, conclude

CODES_12 = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90)
CODES_13 = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
# A fake nvcc that answers like the real one and writes empty outputs.
NVCC = """#!/bin/sh
case "$*" in
    --version) echo 'Cuda compilation tools, release {release}, V{release}.1' ;;
    --list-gpu-code) for code in {codes}; do echo sm_$code; done ;;
    *) {compile}
esac
"""
COMPILE = 'echo "$@" >> "$(dirname "$0")/calls"; while [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done'


def gpu(capability: int = 90, name: str = "H100") -> Gpu:
    """A card of that capability."""
    return Gpu(name, capability, 80 << 30)


def driver(cuda: tuple[int, int] = (13, 0), *gpus: Gpu, version: str = "", problem: str = "") -> Driver:
    """A driver with these cards, or one H100."""
    return Driver(cuda, version, gpus or (gpu(),), problem)


def toolkit(release: tuple[int, int] = (13, 0), without: tuple[str, ...] = (), codes: tuple[int, ...] = ()) -> Toolkit:
    """A whole toolkit of a release, less what is taken away."""
    told = codes or (CODES_13 if release[0] >= 13 else CODES_12)
    headers = {name: f"/t/include/{name}" for name in HEADERS if name not in without}
    libraries = {name: f"/t/lib64/lib{name}.so" for name in LIBRARIES if name not in without}
    return Toolkit(f"/cuda-{release[0]}.{release[1]}/bin/nvcc", release, told, headers, libraries)


def facts(found: Driver | None, *toolkits: Toolkit) -> Facts:
    """All of a machine."""
    return Facts(found, toolkits)


def write_nvcc(
    path: Path, release: str = "13.0", codes: tuple[int, ...] = CODES_13, compile_with: str = COMPILE
) -> Path:
    """A compiler at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(NVCC.format(release=release, codes=" ".join(map(str, codes)), compile=compile_with))
    path.chmod(0o755)
    return path


def write_headers(folder: Path, *names: str, major: int = 0) -> None:
    """Empty headers; `major`: that which tells the version too."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    if major:
        (folder / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {major}000\n")


def write_libraries(folder: Path, *files: str) -> None:
    """Empty libraries."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file).touch()


def write_toolkit(root: Path, release: str = "13.0", codes: tuple[int, ...] = CODES_13) -> Path:
    """A whole toolkit as NVIDIA's installer lays it out."""
    major = release.partition(".")[0]
    write_nvcc(root / "bin" / "nvcc", release, codes)
    write_headers(root / "include", *HEADERS, "crt.h", major=int(major))
    for name in LIBRARIES:
        write_libraries(root / "lib64", f"lib{name}.so.{10 if name == 'curand' else major}")
        (root / "lib64" / f"lib{name}.so").symlink_to(f"lib{name}.so.{10 if name == 'curand' else major}")
    return root


def write_wheels_13(site: Path, *, with_nvcc: bool = True) -> Path:
    """What pip lays out for CUDA 13: one folder for all packages."""
    root = site / "nvidia" / "cu13"
    if with_nvcc:
        write_nvcc(root / "bin" / "nvcc")
    write_headers(root / "include", *HEADERS, major=13)
    write_libraries(root / "lib", *(f"lib{name}.so.{10 if name == 'curand' else 13}" for name in LIBRARIES))
    return root


def write_wheels_12(site: Path) -> Path:
    """What pip lays out for CUDA 12: a folder for each package, and no nvcc."""
    folder = site / "nvidia"
    write_headers(folder / "cuda_runtime" / "include", "cuda_runtime.h", major=12)
    write_libraries(folder / "cuda_runtime" / "lib", "libcudart.so.12")
    write_headers(folder / "cublas" / "include", "cublas_v2.h")
    write_libraries(folder / "cublas" / "lib", "libcublas.so.12", "libcublasLt.so.12")
    write_headers(folder / "curand" / "include", "curand.h")
    write_libraries(folder / "curand" / "lib", "libcurand.so.10")
    return folder


def bare_machine(tmp_path: Path, monkeypatch: Any) -> Callable[..., list[Toolkit]]:
    """A machine without CUDA, hiding that of this machine; returns a function that searches it."""
    monkeypatch.setattr(detect, "USUAL", (f"{tmp_path}/local/cuda", f"{tmp_path}/local/cuda-*"))
    monkeypatch.setattr(detect, "SYSTEM", tmp_path / "usr")
    (tmp_path / "empty").mkdir()

    def found(*site: Path, **environment: str) -> list[Toolkit]:
        return detect.toolkits({"PATH": str(tmp_path / "empty")} | environment, map(str, site))

    return found


def planned(found: Toolkit, capability: int = 90, cuda: tuple[int, int] = (13, 9)) -> CudaBuild:
    """The plan for a GPU with this as the only toolkit."""
    conclusion = conclude(facts(driver(cuda, gpu(capability)), found))
    assert conclusion.plan is not None, conclusion.reason
    return conclusion.plan


def computes(report: Callable[[Line], None], device: str, gpu: int) -> None:
    """Stands in for what is computed."""
    report(Line("computed", f"{device} {gpu}"))


def takes_its_process_along(report: Callable[[Line], None], device: str, gpu: int) -> None:
    """Stands in for a library that aborts."""
    report(Line("computed", "the first half"))
    sys.stderr.write("first words\nlast words\n")
    sys.stderr.flush()
    os.abort()
