"""The trained parameters with moments and average, one step of an optimiser, and schedules of its learning rate.

`train.optimizer` names one of RULES, `train.learning_rate_decay` one of CURVES. Cosine and linear warm-up as published
(https://github.com/Totoro97/NeuS/blob/6e0a230/exp_runner.py); exponential: NeRF, arXiv 2003.08934, section 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from models.config.blocks import ADAM, BETA_1, COSINE, EXPONENTIAL, TrainConfig
from models.fields.state import export_state, named_parameters
from models.machine.backend import jt
from models.methods.protocol import Model
from models.ops import update
from models.ops.update import BETA_2, EPSILON, AdamStep, Update
from models.structs import Var
from models.training.checkpoint import MOMENTS


@dataclass(frozen=True)
class UpdateSettings:
    """The scalars of one step."""

    learning_rate: float
    steps: int  # number of updates, including this one
    beta_2: float  # decay rate of the second moment
    epsilon: float  # epsilon, added to the root of the second moment
    factors: Mapping[str, float] = field(default_factory=dict)  # factors on the rate, by network or `<network>.<name>`
    optimizer: str = ADAM

    def rate(self, name: str) -> float:
        """The learning rate of the parameter `<network>.<name>`."""
        return self.learning_rate * self.factors.get(name, self.factors.get(name.partition(".")[0], 1.0))


# (parameter, gradient, first and second moment, rate of the parameter, numbers of the step) -> parameter and moments
# after it. Moments start at zero, and the second one must not become negative; a rule that needs none returns them.
# It uses only operators that Jittor's Vars and NumPy arrays both support: Vars are trained, arrays are used to analyse
# a skipped step.
UpdateRule = Callable[..., tuple[Any, Any, Any]]


def adam_rule(
    value: Any, gradient: Any, first: Any, second: Any, rate: float, step: UpdateSettings
) -> tuple[Any, Any, Any]:
    """Adam as in `models.ops.update`."""
    layout = AdamStep.after(step.steps, step.beta_2, step.epsilon)
    return update.adam_of(value, gradient, first, second, rate / (1.0 - BETA_1**step.steps), layout)


RULES: dict[str, UpdateRule] = {ADAM: adam_rule}


def updated(before: Update, gradients: Sequence[Var], rates: Sequence[float], settings: UpdateSettings) -> Update:
    """The update by the rule that `settings` names; `rates`: one per parameter."""
    rule = RULES[settings.optimizer]
    if rule is adam_rule:  # one operation over all parameters
        corrected = [rate / (1.0 - BETA_1**settings.steps) for rate in rates]
        layout = AdamStep.after(settings.steps, settings.beta_2, settings.epsilon)
        return update.adam(before, gradients, corrected, layout)
    return update.updated_by(lambda *row: rule(*row, settings), before, gradients, rates)


def faults(
    weights: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
    moments: Mapping[str, Mapping[str, np.ndarray]],
    settings: UpdateSettings,
) -> list[str]:
    """The parameters, `<network>.<name>`, whose update is not finite, and the inputs of such entries, in words.

    It is never stored, so NumPy computes it again: in float64, rounded to float32, as the operation does.
    """
    sentences = []
    for name, weight in weights.items():
        inputs = {"weight": weight, "gradient": gradients[name]} | {part: moments[part][name] for part in MOMENTS}
        with np.errstate(all="ignore"):
            row = (value.astype(np.float64) for value in inputs.values())
            new = np.stack(RULES[settings.optimizer](*row, settings.rate(name), settings)).astype(np.float32)
        is_bad = ~np.isfinite(new).all(axis=0)
        if is_bad.any():
            ends = ((part, bad.min(), bad.max()) for part, values in inputs.items() for bad in [values[is_bad]])
            spans = ", ".join(f"{part} {low:.3g}" + f" to {high:.3g}" * bool(low < high) for part, low, high in ends)
            sentences.append(f"{is_bad.sum()} NaN or Inf in the update of {name} ({spans} in these entries)")
    return sentences


class Optimizer:
    """Parameters with their moments; `steps` counts the updates. Implements `models.methods.protocol.Parameters`."""

    def __init__(
        self,
        networks: Mapping[str, Mapping[str, Var]],
        beta_2: float = BETA_2,
        epsilon: float = EPSILON,
        name: str = ADAM,
    ) -> None:
        """`networks`: network -> name -> parameter, in the order of optimisation. `name`: a key of `RULES`."""
        self._places = [(network, name) for network, values in networks.items() for name in values]
        self.names = [f"{network}.{name}" for network, name in self._places]
        self.parameters = [value for values in networks.values() for value in values.values()]
        self.settings = UpdateSettings(0.0, 0, beta_2, epsilon, optimizer=name)  # of the last step
        self.steps, self.exp_avg, self.exp_avg_sq = 0, list[Var](), list[Var]()
        self.reset_moments()

    def step(
        self,
        gradients: Sequence[Var],
        learning_rate: float,
        accepted: Var | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> Var:
        """Update all parameters in place; starts the computation and does not wait for it.

        Returns whether the step was taken, bool [1]: `accepted` is true and all new values are finite. Otherwise only
        `steps` changes, which the caller undoes, for the bias correction.

        Args:
            gradients: in the order of the parameters.
            factors: on the learning rate, by network or `<network>.<name>`; default 1.
        """
        last = self.settings
        settings = replace(last, learning_rate=learning_rate, steps=self.steps + 1, factors=dict(factors or {}))
        may_be = jt.array(np.ones(1, bool)) if accepted is None else accepted
        before = Update(self.parameters, self.exp_avg, self.exp_avg_sq, may_be)
        rates = [settings.rate(name) for name in self.names]
        after = updated(before, gradients, rates, settings)
        # Outside no_grad, within which Jittor would stop gradients to the parameters permanently.
        parameters = [value.detach() for value in after.parameters]
        # A failed allocation is raised here, before weights, moments and `steps` change.
        jt.sync([*parameters, *after.exp_avg, *after.exp_avg_sq, after.taken])
        for parameter, value in zip(self.parameters, parameters, strict=True):
            parameter.update(value)
        self.exp_avg, self.exp_avg_sq = after.exp_avg, after.exp_avg_sq
        self.settings, self.steps = settings, settings.steps
        return after.taken

    @property
    def named_parameters(self) -> dict[str, Var]:
        """`<network>.<name>` -> parameter, in order."""
        return dict(zip(self.names, self.parameters, strict=True))

    @property
    def named_moments(self) -> dict[str, dict[str, np.ndarray]]:
        """moment -> `<network>.<name>` -> copy, as in checkpoints."""
        groups = zip(MOMENTS, (self.exp_avg, self.exp_avg_sq), strict=True)
        return {
            moment: {name: value.numpy() for name, value in zip(self.names, values, strict=True)}
            for moment, values in groups
        }

    def restore(self, steps: int, exp_avg: Sequence[np.ndarray], exp_avg_sq: Sequence[np.ndarray]) -> None:
        """Continue with saved moments, in the order of the parameters."""
        self.steps = steps
        self.exp_avg, self.exp_avg_sq = (
            [jt.array(values).stop_grad() for values in moments] for moments in (exp_avg, exp_avg_sq)
        )

    def reset_moments(self) -> None:
        """Reset the moments and their bias correction, as at the first step."""
        zeros = [np.zeros(tuple(value.shape), np.float32) for value in self.parameters]
        self.restore(0, zeros, zeros)

    def keep(self, network: str, rows: np.ndarray) -> None:
        """Select rows of every parameter of a network, with their moments; rows may repeat."""
        for index, (owner, _) in enumerate(self._places):
            if owner == network:
                self._replace(index, [value.numpy()[rows] for value in self._of(index)])

    def append(self, network: str, values: Mapping[str, np.ndarray]) -> None:
        """Append rows to every parameter of a network, by name; their moments are zero."""
        for index, (owner, name) in enumerate(self._places):
            if owner == network:
                added = np.asarray(values[name], np.float32)
                pairs = zip(self._of(index), (added, np.zeros_like(added), np.zeros_like(added)), strict=True)
                self._replace(index, [np.concatenate([value.numpy(), rows]) for value, rows in pairs])

    def _of(self, index: int) -> list[Var]:
        """A parameter and its moments."""
        return [values[index] for values in (self.parameters, self.exp_avg, self.exp_avg_sq)]

    def _replace(self, index: int, arrays: list[np.ndarray]) -> None:
        """Replace a parameter and its moments by values of another shape; the Var object remains that of the
        network.
        """
        value, self.exp_avg[index], self.exp_avg_sq[index] = (jt.array(array).stop_grad() for array in arrays)
        self.parameters[index].update(value)
        self.parameters[index].start_grad()


class WeightAverage:
    """Networks with an exponential moving average of the weights, for results; they are never differentiated.

    After step n every averaged weight is e <- d e + (1 - d) w with d = min(decay, (1 + n) / (10 + n)): the small
    initial decay removes the influence of the initial weights (the schedule of TensorFlow's
    tf.train.ExponentialMovingAverage).
    """

    def __init__(self, model: Model, decay: float) -> None:
        """`model` is a copy of the trained one, from whose weights the average starts."""
        self.model, self.networks, self._decay = model, model.networks, decay

    def update(self, parameters: Sequence[Var], step: int) -> None:
        """Update the average with the weights after `step` steps."""
        share = min(self._decay, (1.0 + step) / (10.0 + step))
        values = [value for network in self.networks.values() for value in named_parameters(network).values()]
        for value, parameter in zip(values, parameters, strict=True):
            value.update((value.detach() * share + parameter.detach() * (1.0 - share)).detach())
        jt.sync(values)  # otherwise the graphs of all steps would accumulate until the first image

    def export(self) -> dict[str, dict[str, np.ndarray]]:
        """Copies of the averaged weights, by network and name as in checkpoints."""
        return {name: export_state(network) for name, network in self.networks.items()}


Decay = Callable[[float, float], float]  # (completed fraction in 0..1, final factor) -> factor, initially 1


def cosine(done: float, end: float) -> float:
    """Cosine decay from 1 to `end`."""
    return (math.cos(math.pi * done) + 1.0) * 0.5 * (1.0 - end) + end


CURVES: dict[str, Decay] = {COSINE: cosine, EXPONENTIAL: lambda done, end: end**done}  # the latter for an end above 0


def learning_rate(train: TrainConfig) -> Callable[[int], float]:
    """The rate of a conf, of finished steps: a linear warm-up, then a decay to `learning_rate_alpha` at `end_iter`.

    The very first step of a warm-up has the rate 0, as published.
    """
    decay, warm_up = CURVES[train.learning_rate_decay], train.warm_up_end

    def rate(step: int) -> float:
        done = max(0.0, step - warm_up) / (train.end_iter - warm_up)
        rise = min(1.0, step / warm_up) if warm_up else 1.0
        return train.learning_rate * decay(done, train.learning_rate_alpha) * rise

    return rate
