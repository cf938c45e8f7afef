"""First- and second-order gradients of an SDF against NumPy, and each native operation against its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from models.commands.machine_checks.examples import EXAMPLES, Example, example, kernels, outputs
from models.commands.machine_checks.lines import Line, guarded
from models.fields.conf import SdfConfig
from models.fields.sdf import SDFNetwork
from models.fields.state import export_state, import_state, named_parameters
from models.machine.backend import device_info, jt
from models.ops.kernel import NATIVE, REFERENCE, Kernel, use
from models.structs import Var

BOUND = 1e-3  # relative to the largest value; different orders of float32 sums give hundreds of times less
FAILED = "report it with all of these lines, or use --device cpu"
REMEDY = "its results are wrong on this machine: use --device cpu, and report it with all of these lines"
CONF = SdfConfig(d_in=3, d_out=9, d_hidden=32, n_layers=2, skip_in=(1,), multires=2)
POINTS = 100
SHARPNESS = 100.0  # of Softplus
TINY = 1e-30  # step of the complex-step derivative, which has no cancellation
STEP = 1e-6  # of a central difference in float64
FIRST_BOUND, SECOND_BOUND = 1e-4, 3e-3  # relative; the second-order gradient amplifies rounding by Softplus' curvature
WRONG_SLOPE = "this machine computes wrong gradients: use --device cpu, and report it with all of these lines"


def operations(begun: Callable[[str], None] = lambda name: None) -> Iterator[Line]:
    """A line for each operation; `begun` is called with the name and number of each before it is computed."""
    found = kernels()
    for number, (name, kernel) in enumerate(found.items(), 1):
        if not kernel.is_native:
            yield Line(f"op {name}", f"reference implementation, {device_info().name} has no native one")
        elif name not in EXAMPLES:
            yield Line(f"op {name}", "not compared: it has no example")
        else:
            begun(f"op {name}, {number} of {len(found)}")
            yield from guarded(f"op {name}", partial(_line, name), FAILED)


def _line(name: str) -> Iterator[Line]:
    error, count = difference(kernels()[name], example(name))
    wrong = "" if error <= BOUND else REMEDY
    yield Line(f"op {name}", f"within {error:.0e} of its reference, {count} results", wrong)


def difference(kernel: Kernel, given: Example) -> tuple[float, int]:
    """The largest relative difference between native and reference results of an operation, and their number."""
    native, reference = (results(kernel, given, form) for form in (NATIVE, REFERENCE))
    if len(native) != len(reference):  # the readings of a step are one array, or one for each
        native, reference = ([np.concatenate([value.reshape(-1) for value in side])] for side in (native, reference))
    return max(_apart(*pair) for pair in zip(native, reference, strict=True)), len(native)


def results(kernel: Kernel, example: Example, form: str) -> list[np.ndarray]:
    """Outputs and gradients of one form."""
    with use(form):
        found = outputs(kernel(*example.arguments))[: example.compared]
        gradients = _gradients(found, example.trained) if example.trained else []
        return [np.atleast_1d(value.numpy()).astype(np.float64) for value in (*found, *gradients)]


def _gradients(found: Sequence[Var], trained: Sequence[Var]) -> list[Var]:
    """The gradients of a randomly weighted sum of all outputs."""
    rng = np.random.default_rng(1)
    total = sum((value * jt.array(rng.normal(size=value.shape).astype(np.float32))).sum() for value in found)
    return jt.grad(total, list(trained))


def _apart(native: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference over the largest value; infinite for different shapes or values that are not finite."""
    if native.shape != reference.shape or not (np.isfinite(native).all() and np.isfinite(reference).all()):
        return float("inf")
    return float(np.abs(native - reference).max(initial=0.0) / max(np.abs(reference).max(initial=0.0), 1e-30))


def gradients() -> Iterator[Line]:
    """A line for the gradient, one for the second-order gradient."""
    rng = np.random.default_rng(0)
    network = SDFNetwork(CONF, rng)
    rough = {name: value + rng.normal(0.0, 0.05, value.shape) for name, value in export_state(network).items()}
    import_state(network, rough)
    points = rng.normal(0.0, 0.4, (POINTS, 3)).astype(np.float32)
    state = {name: np.asarray(value, np.float64) for name, value in export_state(network).items()}
    found = network(jt.array(points))
    exact = numpy_gradient(points, state)
    error = np.abs(found.gradient.numpy() - exact).max() / np.abs(exact).max()
    yield Line("SDF gradient", f"within {error:.0e} of NumPy", "" if error <= FIRST_BOUND else WRONG_SLOPE)
    named = named_parameters(network)
    loss = ((found.gradient.sqr().sum(dim=1).sqrt() - 1.0).sqr()).mean()
    along = {name: rng.normal(size=value.shape) for name, value in state.items()}
    slopes = dict(zip(named, jt.grad(loss, list(named.values())), strict=True))
    slope = sum(float((slopes[name].numpy() * along[name].reshape(slopes[name].shape)).sum()) for name in along)
    moved = [{name: value + side * STEP * along[name] for name, value in state.items()} for side in (-1.0, 1.0)]
    before, after = (
        # the eikonal loss (NeuS, arXiv 2106.10689, eq. 15)
        float(np.mean((np.linalg.norm(numpy_gradient(points, one), axis=1) - 1.0) ** 2))
        for one in moved
    )
    expected = (after - before) / (2.0 * STEP)
    error = abs(slope - expected) / abs(expected)
    yield Line("second-order gradient", f"within {error:.0e} of NumPy", "" if error <= SECOND_BOUND else WRONG_SLOPE)


def numpy_gradient(points: np.ndarray, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """The gradient [P, 3] of the SDF of a network of `CONF` at points [P, 3], by complex-step derivatives."""
    moved = np.repeat(points[None].astype(np.complex128), 3, axis=0) + 1j * TINY * np.eye(3)[:, None]
    return signed_distance(moved.reshape(-1, 3), state).imag.reshape(3, -1).T / TINY


def signed_distance(points: np.ndarray, state: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output at complex points [P, 3] -> [P]."""
    parts = [points]
    for level in range(CONF.multires):
        parts += [np.sin(points * 2.0**level), np.cos(points * 2.0**level)]
    encoded = x = np.concatenate(parts, axis=1)
    for layer in range(CONF.n_layers + 1):
        if layer in CONF.skip_in:
            x = np.concatenate([x, encoded], axis=1) / np.sqrt(2.0)
        direction = state[f"lin{layer}.weight_v"]
        matrix = direction * state[f"lin{layer}.weight_g"] / np.linalg.norm(direction, axis=1, keepdims=True)
        x = x @ matrix.T + state[f"lin{layer}.bias"]
        if layer < CONF.n_layers:
            x = _softplus(x)
    return x[:, 0]


def _softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(s x)) / s for complex x, without overflow."""
    is_positive = x.real > 0.0
    rest = np.log1p(np.exp(np.where(is_positive, -x, x) * SHARPNESS)) / SHARPNESS
    return np.where(is_positive, x, 0.0) + rest
