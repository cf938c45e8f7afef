"""Check and time the networks in tiles on a GPU, without Jittor and cuBLAS.

`python -m benchmarks.gpu_tiles --build DIR` compiles the CUDA sources of the SDF, colour and NeRF networks into
libraries in DIR, which need nothing but the driver; it needs an `nvcc`, but no GPU. `--run DIR` runs them beside
float64 references: one line "NAME: ok error=..." or "NAME: WRONG error=..." for each result, then the milliseconds of
each operation and kernel, also of the variants that are open; exit status 1 if a result is wrong. `--device cpu` does
both in the emulation of the tests, at small sizes.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tile_references as references
from benchmarks.tile_references import Array
from data.errors import UserError
from models.ops.sizes import BLOCK, ColorSizes, NerfSizes, SdfSizes

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "benchmarks" / "kernels" / "tiles.h"
FUNCTIONS = ("sdf_distance", "sdf_forward", "sdf_backward", "color_forward", "color_backward")
FUNCTIONS += ("nerf_forward", "nerf_backward")
NVCC_FLAGS = ("-std=c++17", "-O3", "--extended-lambda", "-cudart", "static", "-diag-suppress", "20050,177,550")
NVCC_FLAGS += ("-shared", "-Xcompiler", "-fPIC")
EMULATION_FLAGS = ("-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fPIC", "-shared")
ENTRY = """
extern "C" int run_{name}(const bench::Named *named, long count, long rows, float **memory, const long *sizes,
                          int is_reduced, int is_timed, double *milliseconds) {{
    return bench::call(&neus::{name}<>, named, count, rows, memory, sizes, is_reduced, is_timed, milliseconds);
}}
"""
LAUNCH = "kernel<<<blocks, threads, shared>>>(Parameters(arguments)...);"
MEASURED = f"::profile::around((const void *)kernel, blocks, threads, [&] {{ {LAUNCH} }});"
COLUMN = "column = warp % across * OWN;"
# Replacements in the source: what only a GPU can decide. The first is the source itself.
VARIANTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "tiles": (),
    # The second row of warps begins half a layer later, so that one multiplies while the other stores.
    "apart": ((COLUMN, f"{COLUMN} if (width > 128 && row / OWN % 2) __nanosleep(4000);"),),
}
FIELD_BOUND, GRADIENT_BOUND, WEIGHT_BOUND = 5e-6, 1e-5, 5e-5  # relative L2
LOOSE = 500.0  # with one product
TIMED = (8192, 65536)  # points


class _Named(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_double))


@dataclass(frozen=True)
class Check:
    """A call of an operation, and in float64 what those outputs should be that are compared.

    An input may be the name of an output of an earlier call.
    """

    function: str
    layout: Any
    inputs: Sequence[Array | str]
    outputs: Mapping[str, tuple[int, ...]]
    expected: Mapping[str, Array]


def main(arguments: Sequence[str]) -> int:
    """Build or run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks/gpu_tiles.py", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--build", type=Path, metavar="DIR")
    action.add_argument("--run", type=Path, metavar="DIR")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--capability", default="9.0", help="of the GPU (default: 9.0)")
    parser.add_argument("--quick", action="store_true", help="check 70 points only, for compute-sanitizer")
    given = parser.parse_args(arguments)
    if given.build:
        build(given.build, given.device, given.capability)
        return 0
    return run(given.run, given.device, given.quick)


def build(folder: Path, device: str, capability: str) -> None:
    """Compile a library for each variant, all at the same time; raises UserError with the compiler's message."""
    folder.mkdir(parents=True, exist_ok=True)
    started = []
    for name, command in _commands(folder, device, capability).items():
        words = [*command, "-o", str(folder / f"{name}.so")]
        started.append((name, subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    for name, process in started:
        output, _ = process.communicate()
        if process.returncode:
            raise UserError(f"--build: the variant {name} cannot be compiled: {output[-2000:]}")


def _commands(folder: Path, device: str, capability: str) -> dict[str, list[str]]:
    """The text of each variant in the folder, and the command that compiles it."""
    # Imported here, because they import Jittor, which --run does without.
    check = importlib.import_module("benchmarks.cuda_check")
    sdf = importlib.import_module("models.ops.sdf_mlp").SOURCE
    source = replace(sdf, header=str(PROGRAM), layouts=(SdfSizes, ColorSizes, NerfSizes))
    text = source.text("cuda") + "".join(ENTRY.format(name=name) for name in FUNCTIONS)
    if device == "cpu":
        (folder / "tiles.cpp").write_text(f'#include "cuda_emulation.h"\n{text}', encoding="utf-8")
        compiler = importlib.import_module("models.machine.toolchain").compiler()
        return {"tiles": [compiler, *EMULATION_FLAGS, f"-I{ROOT / 'tests'}", str(folder / "tiles.cpp")]}
    nvcc = check.find_nvcc()
    if nvcc is None:
        raise UserError("--build: there is no nvcc: install a CUDA toolkit, or set nvcc_path")
    (folder / "cublas_v2.h").write_text(check.STUBS["cublas_v2.h"], encoding="utf-8")
    flags = [*NVCC_FLAGS, f"-arch=sm_{capability.replace('.', '')}", f"-I{folder}", f"-I{PROGRAM.parent}"]
    commands = {}
    for name, changes in VARIANTS.items():
        made = text
        for old, new in ((LAUNCH, MEASURED), *changes):
            if made.count(old) != 1:
                raise UserError(f"--build: the source for {name} has {made.count(old)} times: {old}")
            made = made.replace(old, new)
        (folder / f"{name}.cu").write_text(made, encoding="utf-8")
        commands[name] = [nvcc, *flags, str(folder / f"{name}.cu")]
    return commands


def run(folder: Path, device: str, is_quick: bool) -> int:
    """Check every variant, then time the operations; returns 1 if a result is wrong, and times nothing then."""
    names = [name for name in VARIANTS if (folder / f"{name}.so").is_file()]
    if not names:
        raise UserError(f"--run {folder}: there is no {next(iter(VARIANTS))}.so: build it with --build")
    libraries = {name: ctypes.CDLL(str((folder / f"{name}.so").resolve())) for name in names}
    is_small = device == "cpu"
    counts = (70,) if is_small or is_quick else (1, 70, 20070)
    wrong = 0
    for name, library in libraries.items():
        for count in counts:
            for is_reduced in (False, True) if count == 70 else (False,):
                before: dict[str, Array] = {}
                for check in checks(64 if is_small else 256, count):
                    words = f"{name} {count}{' reduced' if is_reduced else ''}"
                    wrong += verify(library, check, before, words, is_reduced)
    if wrong or is_small or is_quick:
        return int(wrong > 0)
    for name, library in libraries.items():
        for count in TIMED:
            before = {}
            for check in checks(256, count, is_timed=True):
                outputs, milliseconds = call(library, check, before, is_timed=True)
                before |= outputs
                print(f"{name} {check.function} {count} points: {milliseconds:.3f} ms", flush=True)
    return 0


def verify(library: ctypes.CDLL, check: Check, before: dict[str, Array], words: str, is_reduced: bool) -> int:
    """Compare a call with its reference, and with itself repeated, to the last bit; returns the number of wrong ones.

    `before`: the outputs of the calls before, to which its own are added.
    """
    found, again = (call(library, check, before, is_reduced)[0] for _ in range(2))
    before |= found
    wrong = 0
    for name, expected in check.expected.items():
        norm = float(np.linalg.norm(expected))
        error = float(np.linalg.norm(found[name] - expected)) / (norm or 1.0)
        bound = WEIGHT_BOUND if "packed" in name else GRADIENT_BOUND if "gradient" in name else FIELD_BOUND
        bound *= LOOSE if is_reduced else 1.0
        is_well = error <= bound and np.array_equal(found[name], again[name])
        same = "" if np.array_equal(found[name], again[name]) else ", not repeatable"
        verdict = "ok" if is_well else "WRONG"
        print(f"{words} {check.function} {name}: {verdict} error={error:.2e} bound={bound:.0e}{same}", flush=True)
        wrong += not is_well
    return wrong


def call(
    library: ctypes.CDLL, check: Check, before: Mapping[str, Array], is_reduced: bool = False, is_timed: bool = False
) -> tuple[dict[str, Array], float]:
    """The outputs, at first NaN, and the milliseconds of a call."""
    outputs = {name: np.full(shape, np.nan, np.float32) for name, shape in check.outputs.items()}
    inputs = [before[value] if isinstance(value, str) else value for value in check.inputs]
    arrays = [np.array(value, np.float32, order="C") for value in inputs] + list(outputs.values())
    memory = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    sizes, numbers = (ctypes.c_long * len(arrays))(*(array.size for array in arrays)), _numbers(check.layout)
    named = (_Named * len(numbers))(*((name.encode(), value) for name, value in numbers.items()))
    milliseconds = ctypes.c_double()
    entry, rows = getattr(library, f"run_{check.function}"), ctypes.c_long(len(arrays[0]))
    flags = (int(is_reduced), int(is_timed), ctypes.byref(milliseconds))
    if entry(named, ctypes.c_long(len(numbers)), rows, memory, sizes, *flags):
        raise UserError(f"--run: {check.function} of {len(arrays[0])} points failed")
    return outputs, milliseconds.value


def _numbers(layout: Any) -> dict[str, float]:
    """As `models.ops.source.numbers`, without Jittor."""
    found: dict[str, float] = {}
    for field in fields(layout):
        value = getattr(layout, field.name)
        entries = value if isinstance(value, tuple) else ()
        found[field.name] = len(entries) if isinstance(value, tuple) else value
        found |= {f"{field.name}{index}": entry for index, entry in enumerate(entries)}
    return found


def checks(width: int, count: int, is_timed: bool = False) -> list[Check]:
    """The operations on random points; without their references if they are timed."""
    rng = np.random.default_rng(0)
    return [check for made in (_sdf, _color, _nerf) for check in made(rng, width, count, is_timed)]


def _cotangents(rng: np.random.Generator, count: int, *widths: int) -> list[Array]:
    """Of very different sizes from point to point, over eight decades, as those of rays."""
    sizes = 10.0 ** (-8.0 * (np.arange(count) % 7) / 6.0)
    return [sizes[:, None] * rng.normal(size=(count, width)) for width in widths]


def _rounded(*arrays: Array) -> list[Array]:
    """As float32 has them."""
    return [array.astype(np.float32).astype(np.float64) for array in arrays]


def _sdf(rng: np.random.Generator, width: int, count: int, is_timed: bool) -> list[Check]:
    encoded, hidden, skip = 39, 8 if width > 64 else 3, 4 if width > 64 else 2
    outputs = [width - encoded if layer + 1 == skip else width for layer in range(hidden)] + [width + 1]
    widths = tuple(value for layer in range(hidden + 1) for value in (width if layer else encoded, outputs[layer]))
    sizes = SdfSizes(hidden + 1, encoded, 6, 1 << skip, widths, 1.0, 1)
    packed = references.sdf_weights(rng, widths)
    points, *cotangents = _rounded(rng.uniform(-0.9, 0.9, (count, 3)), *_cotangents(rng, count, 1, width, 3))
    cotangents[1] *= 1.0 / 1024.0
    record = -(-count // BLOCK) * BLOCK * sum(-(-value // 4) * 4 for value in outputs[:-1])
    found = {} if is_timed else references.sdf(sizes, packed, points, *cotangents)
    shapes = {"sdf": (count, 1), "feature": (count, width), "gradient": (count, 3), "record": (record,)}
    forward = Check("sdf_forward", sizes, (points, packed), shapes, {k: v for k, v in found.items() if k in shapes})
    alone = replace(
        forward,
        function="sdf_distance",
        layout=replace(sizes, keeps=0),
        outputs={"sdf": (count, 1)},
        expected={k: v for k, v in found.items() if k == "sdf"},
    )
    shapes = {"d_packed": packed.shape}
    weights = {k: v for k, v in found.items() if k in shapes}
    return [alone, forward, Check("sdf_backward", sizes, (points, packed, "record", *cotangents), shapes, weights)]


def _color(rng: np.random.Generator, width: int, count: int, is_timed: bool) -> list[Check]:
    fixed, hidden = 30, 4 if width > 64 else 2
    widths = (fixed + 3 + width, *(width for _ in range(2 * hidden - 1)), width, 3)
    sizes = ColorSizes(len(widths) // 2, 1, fixed, 1, width, widths)
    packed = references.weights(rng, widths)
    drawn = [rng.normal(size=(count, channels)) for channels in (fixed, 3, width)]
    *inputs, d_rgb = _rounded(*drawn, *_cotangents(rng, count, 3))
    found = {} if is_timed else references.color(sizes, packed, *inputs, d_rgb)
    made = {"rgb": (count, 3), "kept": (1,)}
    forward = Check("color_forward", sizes, (*inputs, packed), made, {k: v for k, v in found.items() if k in made})
    shapes = {"d_normals": (count, 3), "d_feature": (count, width), "d_packed": packed.shape}
    given = (*inputs, packed, "rgb", "kept", d_rgb)
    backward = Check("color_backward", sizes, given, shapes, {k: v for k, v in found.items() if k in shapes})
    return [forward, backward]


def _nerf(rng: np.random.Generator, width: int, count: int, is_timed: bool) -> list[Check]:
    trunk, skip, octaves, encoded, view = (8, 4, 10, 84, 27) if width > 64 else (3, 1, 2, 20, 15)
    inputs = [encoded] + [width + (encoded if layer == skip + 1 else 0) for layer in range(1, trunk)]
    layers = [(entering, width) for entering in inputs] + [
        (width, width + 1),
        (width + view, width // 2),
        (width // 2, 3),
    ]
    sizes = NerfSizes(trunk, 4, octaves, 4 if width > 64 else 2, (skip,), tuple(np.ravel(layers).tolist()))
    packed = references.weights(rng, sizes.widths)
    drawn = (rng.uniform(-1.0, 1.0, (count, 4)), rng.normal(size=(count, 3)), *_cotangents(rng, count, 1, 3))
    points, directions, *cotangents = _rounded(*drawn)
    found = {} if is_timed else references.nerf(sizes, packed, points, directions, *cotangents)
    shapes = {"density": (count, 1), "rgb": (count, 3)}
    given = (points, directions, packed)
    forward = Check("nerf_forward", sizes, given, shapes, {k: v for k, v in found.items() if k in shapes})
    weights = {k: v for k, v in found.items() if k == "d_packed"}
    return [forward, Check("nerf_backward", sizes, (*given, *cotangents), {"d_packed": packed.shape}, weights)]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {error}")
