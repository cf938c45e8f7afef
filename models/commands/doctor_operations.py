"""The checks of the doctor that load Jittor: gradients of an SDF, each native operation, a product, a checkpoint."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from models.checkpoints.ours import load_checkpoint, save_checkpoint
from models.commands.operation_examples import EXAMPLES, Example, example, kernels, outputs
from models.fields.conf import SdfConfig
from models.fields.sdf import SDFNetwork
from models.fields.state import export_state, import_state, named_parameters
from models.machine.backend import device_info, jt
from models.ops.source import NATIVE, REFERENCE, Kernel, use
from models.training.checkpoint import Checkpoint

Result = tuple[str, str, str]  # name, figure, and a remedy if it is wrong
MOST_DIFFERENCE = 1e-3  # relative to the largest value; different orders of float32 sums give hundreds of times less
WRONG_RESULTS = "its results are wrong on this machine: use --device cpu, and report it with all of these lines"
SDF = SdfConfig(d_in=3, d_out=9, d_hidden=32, n_layers=2, skip_in=(1,), multires=2)
GRADIENT_POINTS = 100
SOFTPLUS_BETA = 100.0  # of Softplus
TINY = 1e-30  # step of the complex-step derivative, which has no cancellation
DIFFERENCE_STEP = 1e-6  # of a central difference in float64
FIRST_BOUND, SECOND_BOUND = 1e-4, 3e-3  # relative; the second-order gradient amplifies rounding by Softplus' curvature
ROWS, INNER = 16384, 256  # of a product: a large batch through a hidden layer of the released networks
REPEATS = 10
MATMUL_BOUND = 1e-5  # relative, of sums of 256 products in float32; TF32 is off
WRONG_SLOPE = "this machine computes wrong gradients: use --device cpu, and report it with all of these lines"


def operation(name: str) -> Iterator[Result]:
    """A native operation against its reference in plain Jittor."""
    if not kernels()[name].is_native:
        yield f"op {name}", f"reference implementation, {device_info().name} has no native one", ""
    elif name not in EXAMPLES:
        yield f"op {name}", "not compared: it has no example", ""
    else:
        error, count = difference(kernels()[name], example(name))
        wrong = "" if error <= MOST_DIFFERENCE else WRONG_RESULTS
        yield f"op {name}", f"within {error:.0e} of its reference, {count} results", wrong


def difference(kernel: Kernel, given: Example) -> tuple[float, int]:
    """The largest relative difference between native and reference results of an operation, and their number."""
    native, reference = (results(kernel, given, form) for form in (NATIVE, REFERENCE))
    if len(native) != len(reference):  # the readings of a step are one array, or one for each
        native, reference = ([np.concatenate([value.reshape(-1) for value in side])] for side in (native, reference))
    return max(_apart(*pair) for pair in zip(native, reference, strict=True)), len(native)


def results(kernel: Kernel, example: Example, form: str) -> list[np.ndarray]:
    """Outputs and gradients of one form."""
    with use(form):
        values = outputs(kernel(*example.arguments))[: example.compared]
        if example.trained:  # of a randomly weighted sum of all outputs
            rng = np.random.default_rng(1)
            weights = [jt.array(rng.normal(size=value.shape).astype(np.float32)) for value in values]
            total = sum((value * weight).sum() for value, weight in zip(values, weights, strict=True))
            values = [*values, *jt.grad(total, list(example.trained))]
        return [np.atleast_1d(value.numpy()).astype(np.float64) for value in values]


def _apart(native: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference over the largest value; infinite for different shapes or values that are not finite."""
    if native.shape != reference.shape or not (np.isfinite(native).all() and np.isfinite(reference).all()):
        return float("inf")
    return float(np.abs(native - reference).max(initial=0.0) / max(np.abs(reference).max(initial=0.0), 1e-30))


def gradients() -> Iterator[Result]:
    """A line for the gradient, one for the second-order gradient."""
    rng = np.random.default_rng(0)
    network = SDFNetwork(SDF, rng)
    rough = {name: value + rng.normal(0.0, 0.05, value.shape) for name, value in export_state(network).items()}
    import_state(network, rough)
    points = rng.normal(0.0, 0.4, (GRADIENT_POINTS, 3)).astype(np.float32)
    state = {name: np.asarray(value, np.float64) for name, value in export_state(network).items()}
    output = network(jt.array(points))
    exact = numpy_gradient(points, state)
    error = np.abs(output.gradient.numpy() - exact).max() / np.abs(exact).max()
    yield "SDF gradient", f"within {error:.0e} of NumPy", "" if error <= FIRST_BOUND else WRONG_SLOPE
    named = named_parameters(network)
    loss = ((output.gradient.sqr().sum(dim=1).sqrt() - 1.0).sqr()).mean()
    along = {name: np.asarray(rng.normal(size=value.shape)) for name, value in state.items()}
    slopes = dict(zip(named, jt.grad(loss, list(named.values())), strict=True))
    slope = sum(float((slopes[name].numpy() * along[name].reshape(slopes[name].shape)).sum()) for name in along)
    moved = [
        {name: value + side * DIFFERENCE_STEP * along[name] for name, value in state.items()} for side in (-1.0, 1.0)
    ]
    before, after = (
        # the eikonal loss (NeuS, arXiv 2106.10689, eq. 15)
        float(np.mean((np.linalg.norm(numpy_gradient(points, one), axis=1) - 1.0) ** 2))
        for one in moved
    )
    expected = (after - before) / (2.0 * DIFFERENCE_STEP)
    error = abs(slope - expected) / abs(expected)
    yield "second-order gradient", f"within {error:.0e} of NumPy", "" if error <= SECOND_BOUND else WRONG_SLOPE


def numpy_gradient(points: np.ndarray, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """The gradient [P, 3] of the SDF of a network of `SDF` at points [P, 3], by complex-step derivatives."""
    moved = np.repeat(points[None].astype(np.complex128), 3, axis=0) + 1j * TINY * np.eye(3)[:, None]
    return signed_distance(moved.reshape(-1, 3), state).imag.reshape(3, -1).T / TINY


def signed_distance(points: np.ndarray, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output at complex points [P, 3] -> [P]."""
    parts = [points]
    for level in range(SDF.multires):
        parts += [np.sin(points * 2.0**level), np.cos(points * 2.0**level)]
    encoded = x = np.concatenate(parts, axis=1)
    for layer in range(SDF.n_layers + 1):
        if layer in SDF.skip_in:
            x = np.concatenate([x, encoded], axis=1) / np.sqrt(2.0)
        direction = state[f"lin{layer}.weight_v"]
        matrix = direction * state[f"lin{layer}.weight_g"] / np.linalg.norm(direction, axis=1, keepdims=True)
        x = x @ matrix.T + state[f"lin{layer}.bias"]
        if layer < SDF.n_layers:
            x = _softplus(x)
    return x[:, 0]


def _softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(s x)) / s for complex x, without overflow."""
    is_positive = x.real > 0.0
    rest = np.log1p(np.exp(np.where(is_positive, -x, x) * SOFTPLUS_BETA)) / SOFTPLUS_BETA
    return np.where(is_positive, x, 0.0) + rest


def matmul() -> Iterator[Result]:
    """Speed and accuracy of a matrix product."""
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=shape).astype(np.float32) for shape in ((ROWS, INNER), (INNER, INNER)))
    x, y = jt.array(left), jt.array(right)
    product = jt.matmul(x, y)
    some = product.numpy()[:100]
    exact = left[:100].astype(np.float64) @ right
    error = np.abs(some - exact).max() / np.abs(exact).max()
    jt.sync_all(True)
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jt.matmul(x, y).sync(True)
        jt.sync_all(True)
        times.append(time.perf_counter() - begin)
    rate = 2.0 * ROWS * INNER * INNER / min(times) / 1e9
    wrong = "" if error <= MATMUL_BOUND else WRONG_RESULTS
    yield "matrix product", f"{rate:.0f} GFLOP/s in float32, within {error:.0e} of NumPy", wrong


def checkpoint() -> Iterator[Result]:
    """Whether a checkpoint is unchanged after writing and reading."""
    network = SDFNetwork(SDF, np.random.default_rng(0))
    tensors = {"sdf_network_fine": export_state(network)}
    with tempfile.TemporaryDirectory() as name:
        path = save_checkpoint(Path(name), Checkpoint(1, tensors, {"exp_avg": {}, "exp_avg_sq": {}}, 0))
        read = load_checkpoint(path)
        size = path.stat().st_size
    before, after = tensors["sdf_network_fine"], read.tensors["sdf_network_fine"]
    is_same = set(before) == set(after) and all(np.array_equal(before[name], after[name]) for name in before)
    yield "checkpoint", f"written and read, {size} bytes", "" if is_same else "it was read differently"
