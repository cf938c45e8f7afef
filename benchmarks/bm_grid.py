"""Measure the hash grid with its network, part by part: `python benchmarks/bm_grid.py --help`."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

if __name__ == "__main__":  # run as a file: the packages lie beside benchmarks/, not in it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.flops import OPERATIONS_PER_MULTIPLY_ADD, matmul_flops
from benchmarks.ours import MATMUL_REPEATS, MATMUL_SHAPE
from benchmarks.report import provenance
from models.machine import backend
from models.machine.backend import jt
from models.ops import grid_sdf
from models.ops.color_mlp import color
from models.ops.grid_sizes import BYTES, FEATURES, POINT, GridSizes, grid_sizes
from models.ops.network import Weights
from models.ops.sizes import ColorSizes
from models.structs import Var

LEVELS, COARSEST, FINEST, LOG2_ROWS = 12, 16, 512, 17
HIDDEN, OUTPUTS = 64, 16
VIEW = 9  # channels of a direction with one octave
COLOR_WIDTHS = (2 * POINT + VIEW + OUTPUTS - 1, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 3)
MILLION = 1e6
CORNERS = 8
COPIED = 2 * 2**26  # bytes that the copy of grid_parts.cpp reads and writes
COMPILE = ("g++", "-std=c++17", "-Ofast", "-march=native", "-fopenmp")
DESCRIPTION = """
Times the fused operation grid_sdf, forward and backward, per million points: whole, and its grid and its network by
themselves; then the colour network that follows; beside them a naive scalar grid (no network), the rate of a plain
matrix product, and what the arithmetic of the network and the traffic of the grid would take at the machine's rates.
The points are packed samples of rays. Prints one line of JSON for each number of threads. Leave the machine alone
meanwhile; where that cannot be, CPU seconds tell more than the clock's.
"""


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks/bm_grid.py", description=DESCRIPTION, allow_abbrev=False)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores}), help="default: 1 and all cores")
    parser.add_argument("--points", type=int, default=32768, help="of one call (default 32768)")
    parser.add_argument("--repeats", type=int, default=15, help="calls, whose median counts (default 15)")
    given = parser.parse_args(arguments)
    backend.select("cpu")
    sizes = grid_sdf.with_network(grid_sizes(LEVELS, COARSEST, FINEST, LOG2_ROWS), (HIDDEN,), OUTPUTS)
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for threads in given.threads:
            print(json.dumps(measure(program, sizes, threads, given.points, given.repeats)))
    return 0


def build(folder: Path) -> Path:
    """Compile grid_parts.cpp with the native sources of the operations and the flags of Jittor's kernels."""
    source, program = folder / "grid.cpp", folder / "grid"
    parts = Path(__file__).with_name("grid_parts.cpp").read_text(encoding="utf-8")
    source.write_text(grid_sdf.SOURCE.text() + parts, encoding="utf-8")
    subprocess.run([*COMPILE, str(source), "-o", str(program)], check=True)
    return program


def measure(program: Path, sizes: GridSizes, threads: int, points: int, repeats: int) -> dict[str, object]:
    """All measurements for a number of threads; times are seconds per million points."""
    load = os.getloadavg()[0]
    layout = (points, repeats, LEVELS, COARSEST, FINEST, LOG2_ROWS, HIDDEN, OUTPUTS)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    told = subprocess.run(
        [str(program), *map(str, layout)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    clock, cpu = (_medians(told, column) for column in (1, 2))
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(threads)
    rate, cpu_rate = matmul_rates()
    color_clock, color_cpu = color_seconds(points, repeats)
    operations = network_operations(sizes)
    per_million = {name: value / points * MILLION for name, value in clock.items() if name != "copy"}
    cpu_per_million = {name: value / points * MILLION for name, value in cpu.items() if name != "copy"}
    return provenance() | {
        "threads": threads,
        "points": points,
        "load_average": load,
        "seconds_per_million": per_million,
        "cpu_seconds_per_million": cpu_per_million,
        "network_share_of_matmul": operations * MILLION / rate / _sum(per_million, "network"),
        "network_share_of_matmul_cpu": operations * MILLION / cpu_rate / _sum(cpu_per_million, "network"),
        "color_seconds_per_million": color_clock / points * MILLION,
        "color_cpu_seconds_per_million": color_cpu / points * MILLION,
        "color_share_of_matmul": color_operations() * points / rate / color_clock,
        "color_share_of_matmul_cpu": color_operations() * points / cpu_rate / color_cpu,
        "grid_share_of_naive": _sum(per_million, "grid") / _sum(per_million, "naive"),
        "grid_share_of_naive_cpu": _sum(cpu_per_million, "grid") / _sum(cpu_per_million, "naive"),
        "matmul_gflops": rate / 1e9,
        "matmul_gflops_of_a_core": cpu_rate / 1e9,
        "copy_gbytes": COPIED / clock["copy"] / 1e9,
        "bound_of_arithmetic": operations * MILLION / rate,
        "bound_of_memory": grid_bytes(sizes) * MILLION / (COPIED / clock["copy"]),
    }


def matmul_rates() -> tuple[float, float]:
    """Operations per second of a plain product, in wall-clock and in CPU time: medians of several calls."""
    rows, inner, columns = MATMUL_SHAPE
    random = np.random.default_rng(0)
    left, right = (jt.array(random.standard_normal(s, dtype=np.float32)) for s in ((rows, inner), (inner, columns)))
    clock, cpu = [], []
    for _ in range(MATMUL_REPEATS):
        begin, spent = time.perf_counter(), time.process_time()
        jt.matmul(left, right).sync(True)
        clock.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - spent)
    operations = matmul_flops(*MATMUL_SHAPE)
    return operations / median(clock), operations / median(cpu)


def color_seconds(points: int, repeats: int) -> tuple[float, float]:
    """Wall-clock and CPU seconds of the colour network, forward and backward: medians of several calls."""
    features = OUTPUTS - 1
    layers = len(COLOR_WIDTHS) // 2
    sizes = ColorSizes(layers, squeeze=1, fixed=POINT + VIEW, normals=1, features=features, widths=COLOR_WIDTHS)
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> Var:
        return jt.array(random.standard_normal(shape, dtype=np.float32) * 0.3)

    given = [numbers(points, width) for width in (POINT + VIEW, POINT, features)]
    shapes = zip(COLOR_WIDTHS[::2], COLOR_WIDTHS[1::2], strict=True)
    weights = Weights([(numbers(outputs, inputs), numbers(outputs)) for inputs, outputs in shapes])
    jt.sync([*given, weights.packed])
    clock, cpu = [], []
    for _ in range(repeats):
        begin, spent = time.perf_counter(), time.process_time()
        jt.sync(jt.grad(color(*given, weights, sizes), [*given[1:], weights.packed]))
        clock.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - spent)
    return median(clock[1:]), median(cpu[1:])


def color_operations() -> int:
    """Floating-point operations of the colour network per point, forward and backward: three products per layer."""
    products = zip(COLOR_WIDTHS[::2], COLOR_WIDTHS[1::2], strict=True)
    return OPERATIONS_PER_MULTIPLY_ADD * 3 * sum(inputs * outputs for inputs, outputs in products)


def network_operations(sizes: GridSizes) -> int:
    """Necessary floating-point operations of the network per point, forward and backward.

    Six products of the first layer (value, sweep, the cotangents of the sweep to the inputs and to the weights, those
    of the value to the weights and to the features) and three of the last one. With one hidden layer there are no
    further products.
    """
    first, last = sizes.inputs * HIDDEN, HIDDEN * OUTPUTS
    return OPERATIONS_PER_MULTIPLY_ADD * (6 * first + 3 * last)


def grid_bytes(sizes: GridSizes) -> int:
    """Bytes that the grid reads and writes per point: corners read, corners read and written back, the record both
    ways.

    Assumes that no two points share a corner and that no cache holds the table; both reduce the actual traffic.
    """
    corners = sizes.active * CORNERS * FEATURES
    left = POINT * (1 + FEATURES) + sizes.active * FEATURES
    return BYTES * (3 * corners + 2 * sizes.recorded + 2 * left)


def _medians(told: str, column: int) -> dict[str, float]:
    """Medians of the output of grid_parts, without the first call of each part."""
    values = defaultdict(list)
    for line in told.splitlines():
        fields = line.split()
        values[fields[0]].append(float(fields[column]))
    return {name: median(times[1:] or times) for name, times in values.items()}


def _sum(times: dict[str, float], part: str) -> float:
    """The sum of forward and backward times."""
    return times[f"{part}_forward"] + times[f"{part}_backward"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
