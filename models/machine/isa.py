"""The instruction set and the floating-point rules of all compiled code.

Instruction set: the highest x86-64 level of the processor (https://gitlab.com/x86-psABIs/x86-64-ABI), or a lower one
chosen by the environment variable NEUS_ISA, so that a newer machine can test the code for older processors. Unlike
-march=native, a level gives the same code on every processor that supports it. Other architectures have one level,
their baseline.

Floating point: IEEE 754 single precision with subnormal numbers, NaN and infinity. Three relaxations are used:

* contraction: a * b + c may be rounded once (FMA). Twice as fast in matrix products, and more exact.
* no errno after mathematical functions, no floating-point traps: neither is used. Otherwise loops with roots,
  comparisons or library functions are not vectorised.
* reassociation, only where the source requests it: `omp simd reduction` and the accumulators of the tiles of `tile.h`.

Loops over exp, log, sin and cos call the vector functions of glibc (libmvec, at most 4 units in the last place), which
need a declaration to be used without -ffast-math: `VECTOR_FUNCTIONS`.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from data.errors import UserError

VARIABLE = "NEUS_ISA"
# Read by oneDNN at its first product; set for a level below the processor's.
ONEDNN_VARIABLE = "ONEDNN_MAX_CPU_ISA"
X86 = ("x86_64", "AMD64")
FLOATING_POINT = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
# GCC's default without -ffast-math, made explicit because approximate reciprocals give NaN for subnormal numbers.
NO_ESTIMATES = "-mno-recip"
VECTOR_FUNCTIONS = """
#if defined(__x86_64__) && defined(__GLIBC__) && defined(_OPENMP)
extern "C" {
#pragma omp declare simd notinbranch
float expf(float) noexcept;
#pragma omp declare simd notinbranch
float logf(float) noexcept;
#pragma omp declare simd notinbranch
float sinf(float) noexcept;
#pragma omp declare simd notinbranch
float cosf(float) noexcept;
}
#endif
"""


@dataclass(frozen=True)
class Level:
    """An instruction set that code is compiled for."""

    name: str
    march: str  # the value of -march; "" for the compiler's default
    onednn: str = ""  # the highest instruction set that oneDNN may use at this level
    features: frozenset[str] = frozenset()  # required flags of /proc/cpuinfo


_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
BASELINE = Level("x86-64", "x86-64", "SSE41")
LEVELS = (
    Level("x86-64-v4", "x86-64-v4", "ALL", _V4),
    Level("x86-64-v3", "x86-64-v3", "AVX2", _V3),
    Level("x86-64-v2", "x86-64-v2", "SSE41", _V2),
)


@cache
def highest(cpuinfo: Path = Path("/proc/cpuinfo")) -> Level:
    """The highest level of this processor."""
    if platform.machine() not in X86:
        return Level(platform.machine(), "")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    flags = next((line for line in lines if line.startswith("flags")), "")
    has = set(flags.partition(":")[2].split())
    return next((level for level in LEVELS if level.features <= has), BASELINE)


def level() -> Level:
    """The level in use; raises UserError if NEUS_ISA names a level that this processor does not support."""
    most, requested = highest(), os.environ.get(VARIABLE)
    if not requested:
        return most
    possible = [entry for entry in (*LEVELS, BASELINE, most) if entry.features <= most.features and most.march]
    chosen = next((entry for entry in possible or [most] if entry.name == requested), None)
    if chosen is None:
        names = ", ".join(dict.fromkeys(entry.name for entry in possible or [most]))
        raise UserError(
            f"the environment variable {VARIABLE} = {requested!r}: this processor supports {names}; set it to one of "
            "these or unset it"
        )
    return chosen


def lower() -> tuple[str, ...]:
    """Names of the levels below the one in use, down to x86-64-v2, the highest first."""
    names = [entry.name for entry in LEVELS]
    return tuple(names[names.index(level().name) + 1 :]) if level().name in names else ()


def core_flags() -> tuple[str, ...]:
    """The compiler flags of the level, for Jittor's own files and for operations."""
    march = level().march
    return (f"-march={march}",) if march else ()


def operation_flags() -> tuple[str, ...]:
    """The compiler flags of operations in addition to `core_flags`."""
    return (*FLOATING_POINT, *((NO_ESTIMATES,) if level().march else ()))
