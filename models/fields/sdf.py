"""The published networks of a surface: signed distance (IDR, arXiv 2003.09852; NeuS, arXiv 2106.10689) and inv_s."""

from __future__ import annotations

from functools import partial

import numpy as np

from models.fields.conf import SdfConfig, VarianceConfig
from models.fields.layers import Layered, fit_distances, geometric_init, uniform_init
from models.fields.protocol import BoundDistance, Draw
from models.fields.state import named_parameters
from models.machine.backend import jt
from models.ops.network import Weights
from models.ops.sdf_mlp import sdf_field
from models.ops.sizes import SdfSizes
from models.ops.source import CPU, device
from models.ops.upsample import NetworkDistance
from models.ops.volrend import EXPONENT_SCALE, inv_s_of
from models.structs import FieldOutput, Var


class SDFNetwork(Layered):
    """An MLP with Softplus, skips and weight norm; a `DistanceField`."""

    def __init__(self, conf: SdfConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        widths = conf.widths
        if conf.geometric_init:
            arrays = geometric_init(rng, widths, conf.embedded_width, conf)
        else:
            arrays = [uniform_init(rng, inputs, outputs) for inputs, outputs in widths]
        self.add_layers(arrays, conf.weight_norm)

    def bind(self) -> BoundDistance:
        """The network with its current parameters."""
        conf = self.conf
        sizes = SdfSizes(
            layers=conf.n_layers + 1,
            encoded=conf.embedded_width,
            octaves=conf.multires,
            skips=sum(1 << layer for layer in conf.skip_in),
            widths=tuple(width for pair in conf.widths for width in pair),
            scale=conf.scale,
        )
        weights = Weights([layer.parts() for layer in self.layers()])
        field = partial(sdf_field, weights=weights, sizes=sizes)
        return BoundDistance(NetworkDistance(weights, sizes), field, lambda points: field(points).sdf)

    active = levels = 0  # see `Leveled`

    def activate(self, first: int, progress: float) -> None:
        """It has no levels."""

    def begin_with_sphere(self, radius: float, is_inverted: bool = False) -> None:
        """See `DistanceField`; without `geometric_init`, the initial distances are random whatever the radius."""
        conf, last, sign = self.conf, self.layers()[-1], -1.0 if is_inverted else 1.0
        if not conf.geometric_init or (radius * conf.scale, is_inverted) == (conf.bias, conf.inside_outside):
            return
        row = last.weight_v if conf.weight_norm else last.weight
        weight, bias = row.numpy().copy(), last.bias.numpy().copy()
        weight[0], bias[0] = sign * np.abs(weight[0]), -sign * radius * conf.scale
        for parameter, values in ((row, weight), (last.bias, bias)):
            parameter.update(jt.array(values))
            parameter.start_grad()

    def begin_with(self, draw: Draw, levels: int) -> None:
        """See `DistanceField`."""
        fit_distances([*named_parameters(self).values()], lambda points: self(points).sdf, draw)

    def execute(self, points: Var) -> FieldOutput:
        """Signed distance, feature and gradient at points [P, 3], differentiable in the parameters."""
        return self.bind().evaluate(points)


class SingleVarianceNetwork(jt.nn.Module):
    """The learned inv_s: one parameter with its published name `variance`."""

    def __init__(self, conf: VarianceConfig) -> None:
        super().__init__()
        self.variance = jt.array(np.array([conf.init_val], np.float32))

    def reset(self, inv_s: float) -> None:
        """Replace the parameter by that of this inv_s."""
        self._replace(jt.array(np.array([np.log(inv_s) / EXPONENT_SCALE], np.float32)))

    def limit(self, inv_s: float) -> None:
        """Reduce the parameter to that of this inv_s if it is larger; does not wait for the device.

        A parameter that is not finite becomes NaN, which `jt.minimum` would hide on CUDA.
        """
        most = np.log(inv_s) / EXPONENT_SCALE
        if device() == CPU and self.variance.item() <= np.float32(most):
            return
        self._replace((self.variance - jt.maximum(self.variance - most, 0.0)).detach())

    def _replace(self, parameter: Var) -> None:
        self.variance.update(parameter)
        self.variance.start_grad()

    def execute(self) -> Var:
        """inv_s, shape [1]."""
        return inv_s_of(self.variance)
