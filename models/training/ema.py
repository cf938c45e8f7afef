"""An exponential moving average of the weights, which reduces the noise of the last steps in results.

After step n every averaged weight is e <- d e + (1 - d) w with d = min(decay, (1 + n) / (10 + n)). The small initial
decay removes the influence of the initial weights (the schedule of TensorFlow's tf.train.ExponentialMovingAverage,
https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.fields.state import export_state, named_parameters
from models.machine.backend import jt
from models.methods.protocol import Model
from models.structs import Var


def decay_at(step: int, decay: float) -> float:
    """The weight of the old average at step `step` (the first is 1)."""
    return min(decay, (1.0 + step) / (10.0 + step))


class WeightAverage:
    """Networks with the averaged weights; they are used for results and never differentiated."""

    def __init__(self, model: Model, decay: float) -> None:
        """`model` is a copy of the trained one, from whose weights the average starts."""
        self.model, self.networks, self.decay = model, model.networks, decay

    @property
    def values(self) -> list[Var]:
        """The averaged weights, in the order of the parameters."""
        return [value for network in self.networks.values() for value in named_parameters(network).values()]

    def update(self, parameters: Sequence[Var], step: int) -> None:
        """Update the average with the weights after a step."""
        kept, values = decay_at(step, self.decay), self.values
        for value, parameter in zip(values, parameters, strict=True):
            value.update((value.detach() * kept + parameter.detach() * (1.0 - kept)).detach())
        jt.sync(values)  # otherwise the graphs of all steps would accumulate until the first image

    def export(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies of the averaged weights, by network and name as in checkpoints."""
        return {name: export_state(network) for name, network in self.networks.items()}
