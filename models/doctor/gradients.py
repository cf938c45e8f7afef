"""First- and second-order gradients of an SDF network, compared with NumPy in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from models.doctor.line import Line
from models.fields.conf import SdfConfig
from models.fields.sdf import SDFNetwork
from models.fields.state import export_state, import_state, named_parameters
from models.machine.backend import jt

CONF = SdfConfig(d_in=3, d_out=9, d_hidden=32, n_layers=2, skip_in=(1,), multires=2)
POINTS = 100
SHARPNESS = 100.0  # of Softplus
TINY = 1e-30  # step of the complex-step derivative, which has no cancellation
STEP = 1e-6  # of a central difference in float64
BOUND, SECOND_BOUND = 1e-4, 3e-3  # relative; the second-order gradient amplifies rounding by Softplus' curvature
REMEDY = "this machine computes wrong gradients: use --device cpu, and report it with all of these lines"


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
    yield Line("SDF gradient", f"within {error:.0e} of NumPy", "" if error <= BOUND else REMEDY)
    named = named_parameters(network)
    loss = ((found.gradient.sqr().sum(dim=1).sqrt() - 1.0).sqr()).mean()
    along = {name: rng.normal(size=value.shape) for name, value in state.items()}
    slopes = dict(zip(named, jt.grad(loss, list(named.values())), strict=True))
    slope = sum(float((slopes[name].numpy() * along[name].reshape(slopes[name].shape)).sum()) for name in along)
    moved = [{name: value + side * STEP * along[name] for name, value in state.items()} for side in (-1.0, 1.0)]
    before, after = (_loss(numpy_gradient(points, one)) for one in moved)
    expected = (after - before) / (2.0 * STEP)
    error = abs(slope - expected) / abs(expected)
    yield Line("second-order gradient", f"within {error:.0e} of NumPy", "" if error <= SECOND_BOUND else REMEDY)


def _loss(gradient: np.ndarray) -> float:
    """The eikonal loss (NeuS, arXiv 2106.10689, eq. 15)."""
    return float(np.mean((np.linalg.norm(gradient, axis=1) - 1.0) ** 2))


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
