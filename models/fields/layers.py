"""Linear layers with and without weight normalisation; their initialisation, that of feature grids, and the fit of a
field to given distances.

Arrays are initialised in NumPy with the generator of the run, so that a seed gives the same network on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from models.config.blocks import BETA_1
from models.fields.conf import SdfConfig
from models.fields.protocol import Draw
from models.machine.backend import jt
from models.ops.network import Parts, matrix_and_bias
from models.ops.sizes import FEATURES, GridSizes
from models.ops.update import AdamStep, Update, adam
from models.structs import Var

FIRST_FEATURES = 1e-4  # features are initialised uniformly between plus and minus this


class Linear(jt.nn.Module):
    """y = x W^T + b, with W = g v / |v| row by row if `weight_norm` (arXiv 1602.07868, eq. 2).

    Parameters have PyTorch's names (`weight_g` [out, 1], `weight_v` [out, in] or `weight`; `bias` [out]).
    """

    def __init__(self, weight: np.ndarray, bias: np.ndarray, weight_norm: bool) -> None:
        super().__init__()
        self.bias = jt.array(bias.astype(np.float32))
        if weight_norm:
            self.weight_g = jt.array(np.linalg.norm(weight, axis=1, keepdims=True).astype(np.float32))
            self.weight_v = jt.array(weight.astype(np.float32))
        else:
            self.weight = jt.array(weight.astype(np.float32))

    def matrix(self) -> Var:
        """The effective W, [out, in]."""
        return matrix_and_bias(self.parts())[0]

    def parts(self) -> Parts:
        """The parameters of the layer for the operations."""
        if not hasattr(self, "weight_v"):
            return self.weight, self.bias
        return self.weight_v, self.weight_g, self.bias


class Layered(jt.nn.Module):
    """A network of linear layers, which have the published names `lin0`, `lin1`, ..."""

    def add_layers(self, arrays: Iterable[tuple[np.ndarray, np.ndarray]], weight_norm: bool) -> None:
        """Add the layers; `arrays`: weight [out, in] and bias [out] of each, from input to output."""
        self._names = []
        for index, (weight, bias) in enumerate(arrays):
            self._names.append(f"lin{index}")
            setattr(self, self._names[-1], Linear(weight, bias, weight_norm))

    def layers(self) -> list[Linear]:
        """The layers from input to output."""
        return [getattr(self, name) for name in self._names]


def uniform_init(rng: np.random.Generator, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """PyTorch's default of a linear layer: weight [out, in] and bias [out] uniform in +-1/sqrt(in)."""
    bound = 1.0 / math.sqrt(inputs)
    return rng.uniform(-bound, bound, (outputs, inputs)), rng.uniform(-bound, bound, outputs)


def first_table(sizes: GridSizes, rng: np.random.Generator) -> Var:
    """The initial features of a grid, [rows, FEATURES] (Instant-NGP, arXiv 2201.05989, section 4)."""
    values = rng.uniform(-FIRST_FEATURES, FIRST_FEATURES, (sizes.rows, FEATURES))
    return jt.array(values.astype(np.float32))


def geometric_init(
    rng: np.random.Generator, widths: list[tuple[int, int]], encoded: int, conf: SdfConfig
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Initial weights of the SDF network: approximately the signed distance of a sphere of radius `conf.bias`.

    SAL, arXiv 1911.10414, section 5, as IDR and NeuS apply it to encoded inputs: sines and cosines have zero weights,
    so that the network initially depends only on the point.

    Args:
        widths: (inputs, outputs) of each layer.
        encoded: channels of the encoded point, the first three of which are the point; 3 without encoding.
        conf: for the skips, the radius, and `inside_outside`, which inverts the sphere for scenes seen from inside.

    Returns:
        (weight [out, in], bias [out]) of each layer.
    """
    arrays = []
    sign = -1.0 if conf.inside_outside else 1.0
    for index, (inputs, outputs) in enumerate(widths):
        if index == len(widths) - 1:
            weight = rng.normal(sign * math.sqrt(math.pi / inputs), 1e-4, (outputs, inputs))
            arrays.append((weight, np.full(outputs, -sign * conf.bias)))
            continue
        weight = rng.normal(0.0, math.sqrt(2.0 / outputs), (outputs, inputs))
        if encoded > 3 and index == 0:
            weight[:, 3:] = 0.0
        elif encoded > 3 and index in conf.skip_in:
            weight[:, -(encoded - 3) :] = 0.0
        arrays.append((weight, np.zeros(outputs)))
    return arrays


# Of Adam, to initial distances: the mean error no longer falls
FITTING_STEPS, FITTING_RATE = 200, 0.01


def fit_distances(parameters: list[Var], distance: Callable[[Var], Var], draw: Draw) -> None:
    """Fit the parameters by Adam to the mean absolute error of `distance`, [P, 3] -> [P, 1], at the points drawn."""
    firsts, seconds = ([jt.zeros(value.shape) for value in parameters] for _ in range(2))
    for step in range(1, FITTING_STEPS + 1):
        points, distances = map(jt.array, draw())
        gradients = jt.grad((distance(points) - distances).abs().mean(), parameters)
        before = Update(parameters, firsts, seconds, jt.array(np.ones(1, bool)))
        rate = FITTING_RATE / (1.0 - BETA_1**step)
        after = adam(before, gradients, [rate] * len(parameters), AdamStep.after(step))
        jt.sync([*after.parameters, *after.exp_avg, *after.exp_avg_sq])
        for parameter, value in zip(parameters, after.parameters, strict=True):
            parameter.update(value.detach())
            parameter.start_grad()
        firsts, seconds = after.exp_avg, after.exp_avg_sq
