"""A CUDA home: one folder of links and small files in which Jittor 1.3.11 finds what it looks for.

Jittor wants bin/nvcc, include/ and lib64/ with plain names under one folder. Toolkits and pip's packages each lay these
out differently, pip's libraries carry their version in their names, and for CUDA 13 Jittor's sources need four things
said otherwise. Nothing of Jittor is changed: `nvcc` here is a script that calls the real one with other flags, and
headers stand in for the two that differ.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from data.errors import LONGEST_REASON
from data.io.lock import waited_for
from models.machine.cuda import refusal
from models.machine.cuda.conclude import Plan, anew
from models.machine.cuda.facts import CUB, HEADERS, HOME_PREFIX, NPP, Toolkit

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
# What g++ is to include first, compiled once for Jittor's own files, is not for nvcc. It may call an older g++ than the
# one that compiles everything else: both build for one C++ library, the newer one's, which runs what the older made.
# Without --use_fast_math division, roots and subnormal numbers are IEEE 754's, as on the CPU (models/machine/isa.py).
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
        -arch=compute_*|-code=sm_*|-ccbin=*|--use_fast_math) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec '{nvcc}' {targets} -ccbin '{host}' "$@"
"""
PROBE = """#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <curand.h>
#include <npp.h>
#include <cub/cub.cuh>
__global__ void twice(float *values) { values[threadIdx.x] *= 2.0f; }
void call(float *values) { twice<<<1, 32>>>(values); }
"""
HOST_TOO_NEW = re.compile(r"unsupported GNU version.*?(?:later than (\d+)|$)", re.MULTILINE)
OLDER_HOSTS = range(19, 8, -1)  # of GCC: all that an nvcc takes, down to the first whose C++17 is settled
# What nvcc says where it cannot write, whatever it compiles.
NO_ROOM = ("No space left", "Disk quota exceeded", "Could not open output file")
UNFIT = "'\"`$\\,"  # what nvcc does not take in the names of folders
SCRATCH, REFUSED = "cuda-new-", "cuda-refused-"  # names beside those of homes


class HomeError(Exception):
    """The home cannot be made, or the compiler in it does not work."""

    def __init__(self, words: str, remedy: str, *, is_of_toolkit: bool = True) -> None:
        """`words` goes on a sentence, `remedy` ends it; is_of_toolkit: another toolkit may do."""
        super().__init__(f"{words}: {remedy}")
        self.words, self.remedy, self.is_of_toolkit = words, remedy, is_of_toolkit


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


def prepare(plan: Plan, place: Path, host: str, patience: float = refusal.PATIENCE) -> Home:
    """The home for a plan below `place`, made where it is not there; `host`: the C++ compiler that nvcc calls.

    Raises HomeError where it cannot be made, or nothing can be compiled with it, now or when it was tried in the last
    `patience` seconds. Of several processes that come at once one makes it, and the others wait.
    """
    folder = place / f"{HOME_PREFIX}{_key(plan, host)}"
    if folder.is_dir():
        return Home(folder, plan)
    if unfit := set(str(place)) & set(UNFIT):
        words = f"its nvcc does not take {' or '.join(sorted(unfit))} in the name of {place}"
        raise HomeError(words, "set JITTOR_HOME to a folder without", is_of_toolkit=False)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with waited_for(place):
            if not folder.is_dir():
                _make_once(plan, folder, host, patience)
    except OSError as error:
        words = f"{folder} cannot be made ({error.strerror or error})"
        raise HomeError(words, "check the folder and the space", is_of_toolkit=False) from error
    return Home(folder, plan)


def _key(plan: Plan, host: str) -> str:
    """A name for all that the contents of a home follow from: of a toolkit that is replaced there is a new one."""
    toolkit = plan.toolkit
    parts = (toolkit.nvcc, toolkit.release, sorted(toolkit.headers.items()), sorted(toolkit.libraries.items()))
    texts = (NPP_TEXT, CUB_TEXT, SCRIPT, STANDARD, FLAGS_13)
    hosts = host, os.path.realpath(shutil.which(host) or host)  # g++ may come to mean another
    return hashlib.sha256(repr((parts, plan.codes, plan.is_translated, hosts, texts)).encode()).hexdigest()[:12]


def _make_once(plan: Plan, folder: Path, host: str, patience: float) -> None:
    """Make it, or raise the HomeError that is remembered."""
    file = folder.with_name(folder.name.replace(HOME_PREFIX, REFUSED, 1))
    looks = refusal.looks(plan.toolkit, (shutil.which(host) or host, *_older_hosts()))
    if known := refusal.recall(file, looks, patience):
        raise HomeError(*known)
    try:
        _make(plan, folder, host)
    except HomeError as error:
        if error.is_of_toolkit:
            refusal.note(file, looks, error.words, error.remedy)
        raise
    file.unlink(missing_ok=True)


def _make(plan: Plan, folder: Path, host: str) -> None:
    """Fill a folder beside, try the compiler in it, and give it its name."""
    for left in folder.parent.glob(f"{SCRATCH}*"):  # by processes that were killed: no other is at work here
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder.parent))
    try:
        fill(plan, scratch, host)
        _try(plan, scratch, host)
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def fill(plan: Plan, folder: Path, host: str) -> None:
    """Write script, headers and links of a home into an empty folder."""
    for name in ("bin", "include", "lib64"):
        (folder / name).mkdir()
    _link_headers(plan.toolkit, folder / "include")
    _link_libraries(plan.toolkit, folder / "lib64")
    _write_script(plan, folder, host)


def _write_script(plan: Plan, folder: Path, host: str) -> None:
    """What Jittor takes for nvcc, which is to call the C++ compiler `host`."""
    script = folder / "bin" / "nvcc"
    release = ".".join(map(str, plan.toolkit.release))
    nvcc, quoted = (text.replace("'", "'\\''") for text in (plan.toolkit.nvcc, host))
    text = SCRIPT.format(release=release, nvcc=nvcc, standard=STANDARD, targets=_targets(plan), host=quoted)
    script.write_bytes(os.fsencode(text))  # folders may be called anything
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _targets(plan: Plan) -> str:
    """nvcc's flags for what is compiled for: machine code, or what the driver of a newer card translates."""
    kind = "compute" if plan.is_translated else "sm"
    return " ".join(f"-gencode arch=compute_{code},code={kind}_{code}" for code in plan.codes)


def _link_headers(toolkit: Toolkit, include: Path) -> None:
    """The headers with all their neighbours, which they include; the compiler's own where two have one name."""
    for name in (*HEADERS, NPP, CUB):
        if name not in toolkit.headers:
            continue
        folder = Path(toolkit.headers[name]).parents[name.count("/")]
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


def _try(plan: Plan, folder: Path, host: str) -> None:
    """Compile with the home, by `host` or else an older g++ that nvcc takes; raises HomeError where that fails."""
    words = _refusal(plan, folder)
    too_new = HOST_TOO_NEW.search(words)
    for older in _older_hosts(int(too_new[1] or OLDER_HOSTS[0])) if too_new else ():
        _write_script(plan, folder, older)
        if not _refusal(plan, folder):
            return
    if too_new:
        package = f"g++-{too_new[1]}" if too_new[1] else "an older g++-N"
        words = f"its nvcc does not take {host}, which is too new, and no older g++ on PATH does instead"
        raise HomeError(words, f"install {package}, which is then found")
    if not words:
        return
    lines = [" ".join(line.split()) for line in words.splitlines() if "error" in line.lower() or "not found" in line]
    reason = (lines or words.split("\n"))[0][:LONGEST_REASON]
    for told in (line for line in words.splitlines() if any(part in line for part in NO_ROOM)):
        remedy = "make room, or set TMPDIR to a folder that has some"
        raise HomeError(f"its nvcc cannot write ({told.strip()[:LONGEST_REASON]})", remedy, is_of_toolkit=False)
    raise HomeError(f"its nvcc compiles nothing ({reason})", anew(plan.toolkit))


def _older_hosts(newest: int = OLDER_HOSTS[0]) -> list[str]:
    """Each older g++ on PATH, the newest first, none above `newest`."""
    found = (shutil.which(f"g++-{number}") for number in OLDER_HOSTS if number <= newest)
    return [path for path in found if path is not None]


def _refusal(plan: Plan, folder: Path) -> str:
    """What the compiler says of a kernel with all headers where it does not compile it; "" where it does."""
    source = folder / "probe.cu"
    source.write_text(PROBE, encoding="utf-8")
    command = [folder / "bin" / "nvcc", "-x", "cu", "-std=c++14", "-w", f"-I{folder / 'include'}"]
    command += ["-c", source, "-o", folder / "probe.o"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise HomeError(f"its nvcc does not end within {PROBE_SECONDS} s", anew(plan.toolkit)) from error
    finally:
        source.unlink()
    (folder / "probe.o").unlink(missing_ok=True)
    return "" if done.returncode == 0 else _said(done)


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """What a compiler said that failed, or how it ended."""
    return (done.stderr + done.stdout).decode(errors="replace").strip() or f"status {done.returncode}"
