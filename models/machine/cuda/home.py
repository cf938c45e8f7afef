"""A CUDA home: a folder of links and small files with the layout that Jittor 1.3.11 expects, made once per machine.

Jittor needs bin/nvcc, include/ and lib64/ with unversioned names in one folder. Toolkits and pip packages have other
layouts, pip's libraries have versioned names, and Jittor's sources do not compile with CUDA 13. Jittor is not changed:
`nvcc` in the home is a script that calls the real one with adapted flags, and replacement headers provide what CUDA 13
removed. `ready` detects driver and toolkits, chooses a toolkit, and makes the home.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from data.errors import FAILURE_TEXTS, LONGEST_REASON
from data.io.files import write_atomically
from data.io.lock import waited_for
from models.machine.cuda import detect
from models.machine.cuda.choice import (
    CUB,
    HEADERS,
    HOME_PREFIX,
    NPP,
    PIP_ALL,
    Conclusion,
    CudaBuild,
    Driver,
    Facts,
    Toolkit,
    anew,
    conclude,
    install,
)
from models.machine.cuda.detect import VISIBLE

STANDARD = "c++17"  # of kernels: CUB of CUDA 13 requires it, and Jittor passes c++14
PROBE_SECONDS = 1800  # timeout; it takes seconds on an idle machine
# CUDA 13 removed two fields of cudaDeviceProp that jittor/extern/cuda/inc/helper_cuda.h:263,307,316,391 reads in unused
# functions: they are replaced by two other fields.
FLAGS_13 = "-DcomputeMode=integrated -DclockRate=multiProcessorCount"
# The limits that jittor/src/misc/cuda_limits.h uses from NPP, which is not needed otherwise.
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
# CUDA 13 removed two iterators from CUB that jittor/extern/cuda/cub/ops/cub_where_op.cc:89 uses; Thrust has them.
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
# The architecture flags replace Jittor's, which end at 9.0; --version is passed through. The precompiled header of g++
# (-include) is removed. The host compiler may be an older g++ than the one for other files: the C++ library of the
# newer one is compatible with code of the older. --use_fast_math is removed, so that division, roots and subnormal
# numbers follow IEEE 754, as on the CPU (models/machine/isa.py).
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
OLDER_HOSTS = range(19, 8, -1)  # versions of GCC that are tried, down to the first with a stable C++17
# Messages of nvcc if it cannot write its output.
NO_ROOM = ("No space left", "Disk quota exceeded", "Could not open output file")
UNFIT = "'\"`$\\,"  # characters that nvcc does not accept in folder names
SCRATCH = "cuda-new-"  # prefix of temporary folders


class HomeError(Exception):
    """The home cannot be made, or its compiler does not work."""

    def __init__(self, words: str, remedy: str, *, is_of_toolkit: bool = True) -> None:
        """`words`: a clause with the reason; is_of_toolkit: another toolkit may work."""
        super().__init__(f"{words}: {remedy}")
        self.words, self.remedy, self.is_of_toolkit = words, remedy, is_of_toolkit


@dataclass(frozen=True)
class Home:
    """A complete CUDA home."""

    folder: Path
    plan: CudaBuild

    @property
    def nvcc(self) -> str:
        """The nvcc script for Jittor."""
        return str(self.folder / "bin" / "nvcc")

    @property
    def flags(self) -> str:
        """Compiler flags for Jittor's sources."""
        return FLAGS_13 if self.plan.toolkit.release[0] >= 13 else ""

    @property
    def key(self) -> str:
        """The hash in the folder's name."""
        return self.folder.name.rpartition("-")[2]


def prepare(plan: CudaBuild, place: Path, host: str) -> Home:
    """The home for a plan below `place`, made if needed; `host`: the C++ compiler that nvcc calls.

    Raises HomeError if it cannot be made or its compiler fails, which is tried at each start: it takes 0.3 s.
    Of several concurrent processes one makes it, and the others wait.
    """
    folder = place / f"{HOME_PREFIX}{_key(plan, host)}"
    if folder.is_dir():
        return Home(folder, plan)
    if unfit := set(str(place)) & set(UNFIT):
        words = f"its nvcc does not accept {' or '.join(sorted(unfit))} in the name of {place}"
        raise HomeError(words, "set JITTOR_HOME to another folder", is_of_toolkit=False)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with waited_for(place):
            if not folder.is_dir():
                _make(plan, folder, host)
    except OSError as error:
        words = f"{folder} cannot be made ({error.strerror or error})"
        raise HomeError(words, "check the folder and the free space", is_of_toolkit=False) from error
    return Home(folder, plan)


def _key(plan: CudaBuild, host: str) -> str:
    """A hash of everything that the contents of a home depend on: a replaced toolkit gets a new home."""
    toolkit = plan.toolkit
    parts = (toolkit.nvcc, toolkit.release, sorted(toolkit.headers.items()), sorted(toolkit.libraries.items()))
    texts = (NPP_TEXT, CUB_TEXT, SCRIPT, STANDARD, FLAGS_13)
    hosts = host, os.path.realpath(shutil.which(host) or host)  # g++ may be a link to different versions
    return hashlib.sha256(repr((parts, plan.codes, plan.is_translated, hosts, texts)).encode()).hexdigest()[:12]


def _make(plan: CudaBuild, folder: Path, host: str) -> None:
    """Fill a temporary folder, test its compiler, and rename it."""
    for left in folder.parent.glob(f"{SCRATCH}*"):  # from killed processes: the lock excludes running ones
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder.parent))
    try:
        fill(plan, scratch, host)
        _try(plan, scratch, host)
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def fill(plan: CudaBuild, folder: Path, host: str) -> None:
    """Write script, headers and links of a home into an empty folder."""
    for name in ("bin", "include", "lib64"):
        (folder / name).mkdir()
    _link_headers(plan.toolkit, folder / "include")
    # Each library by its unversioned name for Jittor, and by its versioned names for the loader.
    for name, file in plan.toolkit.libraries.items():
        path = Path(file)
        versions = [entry.name for entry in path.parent.glob(f"lib{name}.so.*")]
        for link in dict.fromkeys([f"lib{name}.so", path.name, *versions]):
            (folder / "lib64" / link).symlink_to(path)
    _write_script(plan, folder, host)


def _write_script(plan: CudaBuild, folder: Path, host: str) -> None:
    """Write the nvcc script that calls the C++ compiler `host`."""
    script = folder / "bin" / "nvcc"
    release = ".".join(map(str, plan.toolkit.release))
    nvcc, quoted = (text.replace("'", "'\\''") for text in (plan.toolkit.nvcc, host))
    text = SCRIPT.format(release=release, nvcc=nvcc, standard=STANDARD, targets=_targets(plan), host=quoted)
    script.write_bytes(os.fsencode(text))  # folder names may contain any bytes
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _targets(plan: CudaBuild) -> str:
    """nvcc's target flags: machine code, or PTX for a GPU newer than the toolkit."""
    kind = "compute" if plan.is_translated else "sm"
    return " ".join(f"-gencode arch=compute_{code},code={kind}_{code}" for code in plan.codes)


def _link_headers(toolkit: Toolkit, include: Path) -> None:
    """Link the headers and all files beside them, which they include; the compiler's own take precedence."""
    for name in (*HEADERS, NPP, CUB):
        if name not in toolkit.headers:
            continue
        folder = Path(toolkit.headers[name]).parents[name.count("/")]
        if folder == Path("/usr/include"):
            continue  # searched by every compiler
        for entry in sorted(folder.iterdir()):
            link, stands_in = include / entry.name, entry.name == "cub" and toolkit.release[0] >= 13
            if os.path.exists(entry) and not os.path.lexists(link) and not stands_in:
                link.symlink_to(entry)
    if NPP not in toolkit.headers:
        (include / NPP).write_text(NPP_TEXT, encoding="utf-8")
    if toolkit.release[0] >= 13:
        (include / "cub").mkdir()
        (include / "cub" / "cub.cuh").write_text(CUB_TEXT, encoding="utf-8")


def _try(plan: CudaBuild, folder: Path, host: str) -> None:
    """Compile with the home, with `host` or an older g++ that nvcc accepts; raises HomeError if that fails."""
    words = _refusal(plan, folder)
    too_new = HOST_TOO_NEW.search(words)
    newest = int(too_new[1] or OLDER_HOSTS[0]) if too_new else 0
    hosts = (shutil.which(f"g++-{number}") for number in OLDER_HOSTS if number <= newest)
    for older in filter(None, hosts):
        _write_script(plan, folder, older)
        if not _refusal(plan, folder):
            return
    if too_new:
        package = f"g++-{too_new[1]}" if too_new[1] else "an older g++-N"
        words = f"its nvcc does not support {host}, which is too new, and no older g++ on PATH works"
        raise HomeError(words, f"install {package}")
    if not words:
        return
    lines = [" ".join(line.split()) for line in words.splitlines() if "error" in line.lower() or "not found" in line]
    reason = (lines or words.split("\n"))[0][:LONGEST_REASON]
    for line in (line for line in words.splitlines() if any(part in line for part in NO_ROOM)):
        remedy = "free some space, or set TMPDIR to another folder"
        raise HomeError(f"its nvcc cannot write ({line.strip()[:LONGEST_REASON]})", remedy, is_of_toolkit=False)
    raise HomeError(f"its nvcc fails ({reason})", anew(plan.toolkit))


def _refusal(plan: CudaBuild, folder: Path) -> str:
    """The compiler's error for a kernel that includes all headers; "" if it compiles."""
    source = folder / "probe.cu"
    source.write_text(PROBE, encoding="utf-8")
    command: list[str | Path] = [folder / "bin" / "nvcc", "-x", "cu", "-std=c++14", "-w", f"-I{folder / 'include'}"]
    command += ["-c", source, "-o", folder / "probe.o"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise HomeError(f"its nvcc takes more than {PROBE_SECONDS} s", anew(plan.toolkit)) from error
    finally:
        source.unlink()
    (folder / "probe.o").unlink(missing_ok=True)
    output = (done.stderr + done.stdout).decode(errors="replace").strip()
    return "" if done.returncode == 0 else output or f"status {done.returncode}"


UPDATE = "update the driver, or install a CUDA toolkit that is no newer than the driver"
LAST_LOG_BYTES = 65536  # of the log, longer than any message
ERROR_WORDS = re.compile(
    r"error|fail|fatal|cannot|can't|not found|no such|undefined|unsupported|no space", re.IGNORECASE
)
# Colours; [f 1122 17:57:37.828819 64 helper_cuda.h:128]; the C++ library's what(): ; folders of files.
LOCATIONS = re.compile(r"\x1b\[[\d;]*m|\[\w \d{4} [\d:.]+ \w+ [^\]]+\]|^\s*what\(\):|(?<![^\s'\"(])/[^\s'\":]*/")
# Texts of CUDA, Jittor and the loader, in lower case, and their remedies.
REMEDIES = (
    (FAILURE_TEXTS, "end other programs that use the memory of the GPU (see nvidia-smi) or of the machine"),
    (("requiresnewerdriver", "insufficientdriver", "unsupportedptx", "driver version"), UPDATE),
    (("no space left", "quota exceeded"), "free some disk space"),
)
BROKEN = ("cannot open shared object", "undefined symbol")


@dataclass(frozen=True)
class Ready:
    """A CUDA home, or the reason why there is none, with a remedy."""

    home: Home | None
    reason: str = ""


def visible(gpu: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which GPU `gpu`, of those in CUDA_VISIBLE_DEVICES, is the first."""
    named = environment[VISIBLE].split(",") if VISIBLE in environment else None
    if named is None:
        return {**environment, VISIBLE: str(gpu)}
    return {**environment, VISIBLE: named[gpu].strip()} if 0 < gpu < len(named) else dict(environment)


def gather(environment: Mapping[str, str]) -> Facts:
    """Detect driver and toolkits; toolkits are searched only if there is a driver with a GPU."""
    driver: Driver | None = detect.ask(environment)
    toolkits = detect.toolkits(environment, detect.package_folders()) if driver and driver.gpus else ()
    return Facts(driver, tuple(toolkits))


def concluded(gpu: int = 0) -> tuple[Facts, Conclusion]:
    """The facts, and the conclusion for GPU `gpu`."""
    facts = gather(os.environ)
    return facts, conclude(facts, gpu)


@lru_cache(maxsize=4)
def ready(gpu: int, place: Path, host: str) -> Ready:
    """The home for GPU `gpu` below `place`, with `host` as nvcc's C++ compiler; computed once per process."""
    facts, conclusion = concluded(gpu)
    if conclusion.plan is None or facts.driver is None:
        return Ready(None, conclusion.reason)
    plans = (conclusion.plan, *conclusion.others)
    errors: list[HomeError] = []
    for plan in plans:
        try:
            return Ready(prepare(plan, place, host))
        except HomeError as error:
            errors.append(error)
            if not error.is_of_toolkit:
                break
    return Ready(None, _refused(plans, errors, facts.driver))


def _refused(plans: Sequence[CudaBuild], errors: Sequence[HomeError], driver: Driver) -> str:
    """Why no toolkit works, with a reason for each; the remedy is that of the first toolkit, or pip's packages."""
    gpu, first, tried = plans[0].gpu, errors[0], list(zip(plans, errors, strict=False))
    reasons = ", and ".join(f"{plan.toolkit.words} was found, but {error.words}" for plan, error in tried)
    remedies = [first.remedy]
    pips = {error.remedy for plan, error in tried if plan.toolkit.is_pips}
    if first.is_of_toolkit and install(driver) == PIP_ALL != first.remedy and pips <= {PIP_ALL}:
        remedies.append(PIP_ALL)
    return f"{gpu.words} is not used, {reasons}: {', or '.join(remedies)}, or use --device cpu"


def failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    """Why `task(report, gpu)` fails with the home and what to do; "" if it succeeds now or succeeded before."""
    with contextlib.suppress(OSError), waited_for(home.folder):
        if _mark(home).is_file():
            return ""
        words = _failure(home, task, gpu)
        if not words:
            write_atomically(_mark(home), b"")
        return words
    return "" if _mark(home).is_file() else f"{home.folder} cannot be written to: check the folder and the free space"


def _failure(home: Home, task: Callable[..., Any], gpu: int) -> str:
    from data.io.child import ChildError, run_apart  # what it imports would delay every start by some 20 ms

    log = home.folder / "trial.log"
    log.unlink(missing_ok=True)
    try:
        run_apart(task, gpu, log=log)
        return ""
    except (ChildError, MemoryError) as error:
        reasons = [_plain(str(error))]
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_LOG_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    errors = [_plain(line) for line in lines if ERROR_WORDS.search(line)]
    reasons += [line for line in errors[-1:] if line and line not in reasons[0]]
    words = " ".join(reasons).lower()
    remedies = (*REMEDIES, (BROKEN, anew(home.plan.toolkit)), (("",), "report it with that file"))
    remedy = next(remedy for parts, remedy in remedies if any(part in words for part in parts))
    return f"{', '.join(reasons)} (see {log}): {remedy}, or use --device cpu"


def _plain(line: str) -> str:
    """A library's message without colours, source locations, times and folders."""
    return " ".join(LOCATIONS.sub("", line).split())[:LONGEST_REASON]


def _mark(home: Home) -> Path:
    """The file that records a successful trial, for this version of Jittor and Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return home.folder / f"tried-{importlib.metadata.version('jittor')}-{python}"
