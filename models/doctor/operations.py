"""Each native operation against its reference: values, and gradients of a randomly weighted sum of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from models.doctor.line import Line, guarded
from models.machine.backend import device_info, jt
from models.ops.examples import EXAMPLES, Example, example, kernels, outputs
from models.ops.kernel import NATIVE, REFERENCE, use
from models.structs import Var

BOUND = 1e-3  # relative to the largest value; different orders of float32 sums give hundreds of times less
FAILED = "report it with all of these lines, or use --device cpu"
REMEDY = "its results are wrong on this machine: use --device cpu, and report it with all of these lines"


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
    error, count = difference(example(name))
    wrong = "" if error <= BOUND else REMEDY
    yield Line(f"op {name}", f"within {error:.0e} of its reference, {count} results", wrong)


def difference(example: Example) -> tuple[float, int]:
    """The largest relative difference between native and reference results, and the number of results."""
    native, reference = (results(example, form) for form in (NATIVE, REFERENCE))
    if len(native) != len(reference):  # the readings of a step are one array, or one for each
        native, reference = ([np.concatenate([value.reshape(-1) for value in side])] for side in (native, reference))
    return max(_apart(*pair) for pair in zip(native, reference, strict=True)), len(native)


def results(example: Example, form: str) -> list[np.ndarray]:
    """Outputs and gradients of one form."""
    with use(form):
        found = outputs(example.kernel(*example.arguments))[: example.compared]
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
