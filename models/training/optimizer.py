"""The trained parameters with their moments: one step of the conf's optimiser over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.checkpoints.ours import MOMENTS
from models.config.optimizers import ADAM, BETA_1, OPTIMIZERS, UpdateSettings, adam
from models.machine.backend import jt
from models.ops import update
from models.ops.update import BETA_2, EPSILON, AdamStep, Update
from models.structs import Var


def updated(before: Update, gradients: Sequence[Var], rates: Sequence[float], settings: UpdateSettings) -> Update:
    """The update by the rule that `settings` names, as `models.ops.update.gated`; `rates`: of each parameter."""
    rule = OPTIMIZERS[settings.optimizer]
    if rule is adam:  # one operation over all parameters; a test holds it to the rule
        corrected = [rate / (1.0 - BETA_1**settings.steps) for rate in rates]
        layout = AdamStep.after(settings.steps, settings.beta_2, settings.epsilon)
        return update.adam(before, gradients, corrected, layout)
    values = (before.parameters, gradients, before.exp_avg, before.exp_avg_sq)
    rows = [[value.float64() for value in row] for row in zip(*values, strict=True)]
    return update.gated(before, [rule(*row, rate, settings) for row, rate in zip(rows, rates, strict=True)])


class Optimizer:
    """Parameters with their moments; `steps` counts the updates made. A `models.methods.protocol.Parameters`."""

    def __init__(
        self,
        networks: Mapping[str, Mapping[str, Var]],
        beta_2: float = BETA_2,
        epsilon: float = EPSILON,
        name: str = ADAM,
        averages: Sequence[Var] = (),
    ) -> None:
        """`networks`: network -> name -> parameter, in the order in which they are optimised.

        `name`: of the rule, a key of `OPTIMIZERS`. `averages`: of the parameters, or none; their rows follow.
        """
        self._numbers = {"beta_2": beta_2, "epsilon": epsilon, "optimizer": name}
        self._places = [(network, name) for network, values in networks.items() for name in values]
        self.names = [f"{network}.{name}" for network, name in self._places]
        self.parameters = [value for values in networks.values() for value in values.values()]
        self._averages = list(averages)
        self.settings: UpdateSettings | None = None  # of the last step
        self.reset_moments()

    def step(
        self,
        gradients: Sequence[Var],
        learning_rate: float,
        accepted: Var | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> Var:
        """Update all parameters in place and start the computation; does not wait for it.

        Returns whether the step was taken, bool [1]: `accepted`, and every number that it makes is finite. Where it
        turns out False nothing changes but `steps`: take that back with `skip`.

        Args:
            gradients: in the order of the parameters.
            factors: on the learning rate, by network or `<network>.<name>`; 1 where neither is named.
        """
        if len(gradients) != len(self.parameters):
            raise ValueError(f"{len(gradients)} gradients for {len(self.parameters)} parameters")
        settings = UpdateSettings(learning_rate, self.steps + 1, factors=dict(factors or {}), **self._numbers)
        may_be = jt.array(np.ones(1, bool)) if accepted is None else accepted
        before = Update(self.parameters, self.exp_avg, self.exp_avg_sq, may_be)
        rates = [settings.rate(name) for name in self.names]
        after = updated(before, [gradient.detach() for gradient in gradients], rates, settings)
        # Outside no_grad: within it Jittor would freeze the parameters for ever.
        parameters = [value.detach() for value in after.parameters]
        # An allocation that fails is met here: weights, moments and `steps` are still those of the step before.
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
        """StepContext -> `<network>.<name>` -> copy, as checkpoints have them."""
        groups = zip(MOMENTS, (self.exp_avg, self.exp_avg_sq), strict=True)
        return {
            moment: {name: value.numpy() for name, value in zip(self.names, values, strict=True)}
            for moment, values in groups
        }

    def skip(self) -> None:
        """The last step was not accepted: the bias correction does not count it."""
        self.steps -= 1

    def restore(self, steps: int, exp_avg: Sequence[np.ndarray], exp_avg_sq: Sequence[np.ndarray]) -> None:
        """Go on from saved moments, in the order of the parameters."""
        self.steps = steps
        self.exp_avg, self.exp_avg_sq = (
            [jt.array(values).stop_grad() for values in moments] for moments in (exp_avg, exp_avg_sq)
        )

    def reset_moments(self) -> None:
        """Start the moments and their bias correction anew, as at the first step."""
        zeros = [np.zeros(tuple(value.shape), np.float32) for value in self.parameters]
        self.restore(0, zeros, zeros)

    def keep(self, network: str, rows: np.ndarray) -> None:
        """Cut every parameter of a network, and its moments, to these rows in this order; rows may repeat."""
        for index, (owner, _) in enumerate(self._places):
            if owner == network:
                self._replace(index, *(value.numpy()[rows] for value in self._of(index)))

    def append(self, network: str, values: Mapping[str, np.ndarray]) -> None:
        """Add rows to every parameter of a network, by name; their moments start at zero, their averages there."""
        for index, (owner, name) in enumerate(self._places):
            if owner == network:
                pairs = zip(self._of(index), _fresh(values[name]), strict=False)
                self._replace(index, *(np.concatenate([value.numpy(), rows]) for value, rows in pairs))

    def replace(self, network: str, name: str, values: np.ndarray) -> None:
        """Other values for one parameter; its moments start at zero, its average there."""
        self._replace(self._places.index((network, name)), *_fresh(values))

    def _of(self, index: int) -> list[Var]:
        """A parameter, its moments, and its average where there is one."""
        return [values[index] for values in (self.parameters, self.exp_avg, self.exp_avg_sq, self._averages) if values]

    def _replace(
        self, index: int, parameter: np.ndarray, first: np.ndarray, second: np.ndarray, *average: np.ndarray
    ) -> None:
        """Other values, of another shape, for one parameter; the Var stays the network's own."""
        self.parameters[index].update(jt.array(parameter).detach())
        self.parameters[index].start_grad()
        self.exp_avg[index], self.exp_avg_sq[index] = (jt.array(values).stop_grad() for values in (first, second))
        for own, values in zip(self._averages[index : index + 1], average, strict=False):
            own.update(jt.array(values).detach())


def _fresh(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """A parameter's values with the moments, and the average, that they start with."""
    added = np.asarray(values, np.float32)
    return added, np.zeros_like(added), np.zeros_like(added), added
