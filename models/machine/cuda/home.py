"""A CUDA home: one folder of links and small files in which Jittor 1.3.11 finds what it looks for.

Jittor wants bin/nvcc, include/ and lib64/ with plain names under one folder. Toolkits and pip's packages each lay these
out differently, pip's libraries carry their version in their names, and for CUDA 13 Jittor's sources need four things
said otherwise. Nothing of Jittor is changed: `nvcc` here is a script that calls the real one with other flags, and
headers stand in for the two that differ.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from data.errors import LONGEST_REASON
from data.io.lock import waited_for
from models.machine.cuda.conclude import PIP_ALL, Plan
from models.machine.cuda.facts import HEADERS, HOME_PREFIX, NPP, Toolkit

STANDARD = "c++17"  # of kernels, for all toolkits: CUB of CUDA 13 asks for it where Jittor says c++14
PROBE_SECONDS = 1800  # seconds of work, on a machine that may be busy
# cudaDeviceProp lost two fields in CUDA 13 that jittor/extern/cuda/inc/helper_cuda.h:263,307,316,391 reads, in
# functions that nothing calls: two others take their place.
FLAGS_13 = "-DcomputeMode=integrated -DclockRate=multiProcessorCount"
# The limits that jittor/src/misc/cuda_limits.h takes from NPP, a library which nothing else needs.
NPP_TEXT = """#pragma once
#define NPP_MIN_32U 0
#define NPP_MAX_32U 4294967295U
#define NPP_MIN_32S (-2147483647 - 1)
#define NPP_MAX_32S 2147483647
#define NPP_MIN_64U 0
#define NPP_MAX_64U 18446744073709551615ULL
#define NPP_MIN_64S (-9223372036854775807LL - 1)
#define NPP_MAX_64S 9223372036854775807LL
"""
# CUDA 13 took two iterators out of CUB that jittor/extern/cuda/cub/ops/cub_where_op.cc:89 names; Thrust has them.
CUB_TEXT = """#pragma once
#include_next <cub/cub.cuh>
#include <cstddef>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
namespace cub {
template <typename Value, typename Offset = std::ptrdiff_t>
using CountingInputIterator = thrust::counting_iterator<Value>;
template <typename Value, typename Function, typename Iterator, typename Offset = std::ptrdiff_t>
using TransformInputIterator = thrust::transform_iterator<Function, Iterator, Value>;
}
"""
# The flags for the card take the place of those that Jittor knows, which end at 9.0; it asks for the version by itself.
# What g++ is to include first, compiled once for Jittor's own files, is not for nvcc.
SCRIPT = """#!/bin/sh
# nvcc {release} as Jittor needs it
[ "$1" = --version ] && exec '{nvcc}' --version
skips=
for word do
    shift
    [ -n "$skips" ] && skips= && continue
    case "$word" in
        -include) skips=yes ;;
        -std=c++14) set -- "$@" -std={standard} ;;
        -arch=compute_*|-code=sm_*) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec '{nvcc}' {targets} "$@"
"""
PROBE = """#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <curand.h>
#include <npp.h>
#include <cub/cub.cuh>
__global__ void twice(float *values) { values[threadIdx.x] *= 2.0f; }
void call(float *values) { twice<<<1, 32>>>(values); }
"""
HOST_TOO_NEW = "unsupported GNU version"


class HomeError(Exception):
    """The home cannot be made, or the compiler in it does not work; the text goes on a sentence, with what to do."""


@dataclass(frozen=True)
class Home:
    """A home that is ready."""

    folder: Path
    plan: Plan

    @property
    def nvcc(self) -> str:
        """What Jittor takes for nvcc."""
        return str(self.folder / "bin" / "nvcc")

    @property
    def flags(self) -> str:
        """Flags for all that Jittor compiles with it."""
        return FLAGS_13 if self.plan.toolkit.release[0] >= 13 else ""

    @property
    def key(self) -> str:
        """What tells this home from others, as part of a name."""
        return self.folder.name.rpartition("-")[2]


def prepare(plan: Plan, place: Path, host: str) -> Home:
    """The home for a plan below `place`, made where it is not there; `host`: the C++ compiler that nvcc calls.

    Raises HomeError where it cannot be made, or nothing can be compiled with it. Of several processes that come at once
    one makes it, and the others wait.
    """
    folder = place / f"{HOME_PREFIX}{_key(plan, host)}"
    if folder.is_dir():
        return Home(folder, plan)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with waited_for(place):
            if not folder.is_dir():
                _make(plan, folder, host)
    except OSError as error:
        raise HomeError(
            f"{folder} cannot be made ({error.strerror or error}): check the folder and the space"
        ) from error
    return Home(folder, plan)


def _key(plan: Plan, host: str) -> str:
    """A name for all that the contents of a home follow from: of a toolkit that is replaced there is a new one."""
    toolkit = plan.toolkit
    parts = (toolkit.nvcc, toolkit.release, sorted(toolkit.headers.items()), sorted(toolkit.libraries.items()))
    texts = (NPP_TEXT, CUB_TEXT, SCRIPT, STANDARD, FLAGS_13)
    return hashlib.sha256(repr((parts, plan.codes, plan.is_translated, host, texts)).encode()).hexdigest()[:12]


def _make(plan: Plan, folder: Path, host: str) -> None:
    """Fill a folder beside, try the compiler in it, and give it its name."""
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        fill(plan, scratch)
        _probe(scratch, host, _anew(plan.toolkit))
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def fill(plan: Plan, folder: Path) -> None:
    """Write script, headers and links of a home into an empty folder."""
    for name in ("bin", "include", "lib64"):
        (folder / name).mkdir()
    toolkit = plan.toolkit
    _link_headers(toolkit, folder / "include")
    _link_libraries(toolkit, folder / "lib64")
    script = folder / "bin" / "nvcc"
    release, quoted = ".".join(map(str, toolkit.release)), toolkit.nvcc.replace("'", "'\\''")
    text = SCRIPT.format(release=release, nvcc=quoted, standard=STANDARD, targets=_targets(plan))
    script.write_bytes(os.fsencode(text))  # folders may be called anything
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _targets(plan: Plan) -> str:
    """nvcc's flags for what is compiled for: machine code, or what the driver of a newer card translates."""
    kind = "compute" if plan.is_translated else "sm"
    return " ".join(f"-gencode arch=compute_{code},code={kind}_{code}" for code in plan.codes)


def _link_headers(toolkit: Toolkit, include: Path) -> None:
    """The headers with all their neighbours, which they include; the compiler's own where two have one name."""
    for name in (*HEADERS, NPP):
        if name not in toolkit.headers:
            continue
        folder = Path(toolkit.headers[name]).parent
        if folder == Path("/usr/include"):
            continue  # every compiler looks there
        for entry in sorted(folder.iterdir()):
            link, stands_in = include / entry.name, entry.name == "cub" and toolkit.release[0] >= 13
            if os.path.exists(entry) and not os.path.lexists(link) and not stands_in:
                link.symlink_to(entry)
    if NPP not in toolkit.headers:
        (include / NPP).write_text(NPP_TEXT, encoding="utf-8")
    if toolkit.release[0] >= 13:
        (include / "cub").mkdir()
        (include / "cub" / "cub.cuh").write_text(CUB_TEXT, encoding="utf-8")


def _link_libraries(toolkit: Toolkit, place: Path) -> None:
    """Each library by the plain name that Jittor asks for, and by those that what is linked records."""
    for name, file in toolkit.libraries.items():
        path = Path(file)
        versions = [entry.name for entry in path.parent.glob(f"lib{name}.so.*")]
        for link in dict.fromkeys([f"lib{name}.so", path.name, *versions]):
            (place / link).symlink_to(path)


def _anew(toolkit: Toolkit) -> str:
    """What to do about a toolkit that is broken: pip's lies among other packages."""
    return PIP_ALL if "site-packages" in Path(toolkit.nvcc).parts else "install the toolkit anew"


def _probe(folder: Path, host: str, remedy: str) -> None:
    """Compile a kernel with all headers; raises HomeError, with the compiler's words, where that fails."""
    source = folder / "probe.cu"
    source.write_text(PROBE, encoding="utf-8")
    command = [folder / "bin" / "nvcc", "-x", "cu", "-std=c++14", "-ccbin", host, "-w", f"-I{folder / 'include'}"]
    command += ["-c", source, "-o", folder / "probe.o"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise HomeError(f"its nvcc does not end within {PROBE_SECONDS} s: use --device cpu") from error
    finally:
        source.unlink()
    (folder / "probe.o").unlink(missing_ok=True)
    if done.returncode == 0:
        return
    words = (done.stderr + done.stdout).decode(errors="replace")
    if HOST_TOO_NEW in words:
        raise HomeError(f"its nvcc does not take {host}, which is too new: install an older g++ and set cc_path to it")
    lines = [" ".join(line.split()) for line in words.splitlines() if "error" in line.lower() or "not found" in line]
    reason = (lines or words.split("\n") or [""])[0][:LONGEST_REASON] or f"status {done.returncode}"
    raise HomeError(f"its nvcc compiles nothing ({reason}): {remedy}, or use --device cpu")
