"""An exponential moving average of the weights, for results that do not tremble with the last steps.

After step n every averaged weight is e <- d e + (1 - d) w with d = min(decay, (1 + n) / (10 + n)): the average forgets
the initial weights fast at first, when it would otherwise consist of them (the schedule of TensorFlow's
tf.train.ExponentialMovingAverage, https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.fields.state import export_state, import_state, named_parameters
from models.machine.backend import jt
from models.methods.protocol import Model
from models.structs import Var


def decay_at(step: int, decay: float) -> float:
    """The share of the old average that step `step` (the first is 1) keeps."""
    return min(decay, (1.0 + step) / (10.0 + step))


class WeightAverage:
    """Networks of their own that hold the average; they are rendered with, never differentiated."""

    def __init__(self, model: Model, live: Mapping[str, jt.nn.Module], decay: float) -> None:
        """`model` has networks of the same shapes as `live`, from whose weights the average starts."""
        self.model = model
        self.decay = decay
        weights = {name: export_state(network) for name, network in live.items()}
        # A sampler may have given the live ones other sizes, or taken some away.
        model.adapt({name: {key: array.shape for key, array in named.items()} for name, named in weights.items()})
        self.networks = model.networks
        for name, network in self.networks.items():
            import_state(network, weights[name])

    @property
    def values(self) -> list[Var]:
        """The averaged weights, in the order of the parameters."""
        return [value for network in self.networks.values() for value in named_parameters(network).values()]

    def update(self, parameters: Sequence[Var], step: int) -> None:
        """Take in the weights after a step."""
        kept, values = decay_at(step, self.decay), self.values
        for value, parameter in zip(values, parameters, strict=True):
            value.update((value.detach() * kept + parameter.detach() * (1.0 - kept)).detach())
        jt.sync(values)  # else each step would leave its graph behind, for the first picture to work off

    def export(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies of the averaged weights, network by network, under their names in checkpoints."""
        return {name: export_state(network) for name, network in self.networks.items()}
