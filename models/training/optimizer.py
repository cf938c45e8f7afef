"""The trained parameters with their moments, and one step of the conf's optimiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from models.checkpoints.ours import MOMENTS
from models.config.blocks import ADAM, BETA_1
from models.machine.backend import jt
from models.ops import update
from models.ops.update import BETA_2, EPSILON, AdamStep, Update
from models.structs import Var
from models.training.optimizers import RULES, UpdateSettings, adam


def updated(before: Update, gradients: Sequence[Var], rates: Sequence[float], settings: UpdateSettings) -> Update:
    """The update by the rule that `settings` names, as `models.ops.update.gated`; `rates`: one per parameter."""
    rule = RULES[settings.optimizer]
    if rule is adam:  # one operation over all parameters; a test compares it with the rule
        corrected = [rate / (1.0 - BETA_1**settings.steps) for rate in rates]
        layout = AdamStep.after(settings.steps, settings.beta_2, settings.epsilon)
        return update.adam(before, gradients, corrected, layout)
    values = (before.parameters, gradients, before.exp_avg, before.exp_avg_sq)
    rows = [[value.float64() for value in row] for row in zip(*values, strict=True)]
    after = [rule(x, g, m, v, rate, settings) for (x, g, m, v), rate in zip(rows, rates, strict=True)]
    return update.gated(before, after)


class Optimizer:
    """Parameters with their moments; `steps` counts the updates. Implements `models.methods.protocol.Parameters`."""

    def __init__(
        self,
        networks: Mapping[str, Mapping[str, Var]],
        beta_2: float = BETA_2,
        epsilon: float = EPSILON,
        name: str = ADAM,
        averages: Sequence[Var] = (),
    ) -> None:
        """`networks`: network -> name -> parameter, in the order of optimisation. `name`: a key of `RULES`.
        `averages`: of the parameters, or none; their rows change with those of the parameters.
        """
        self._places = [(network, name) for network, values in networks.items() for name in values]
        self.names = [f"{network}.{name}" for network, name in self._places]
        self.parameters = [value for values in networks.values() for value in values.values()]
        self._averages = list(averages)
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
        `steps` changes; undo that with `skip`.

        Args:
            gradients: in the order of the parameters.
            factors: on the learning rate, by network or `<network>.<name>`; default 1.
        """
        if len(gradients) != len(self.parameters):
            raise ValueError(f"{len(gradients)} gradients for {len(self.parameters)} parameters")
        last = self.settings
        settings = replace(last, learning_rate=learning_rate, steps=self.steps + 1, factors=dict(factors or {}))
        may_be = jt.array(np.ones(1, bool)) if accepted is None else accepted
        before = Update(self.parameters, self.exp_avg, self.exp_avg_sq, may_be)
        rates = [settings.rate(name) for name in self.names]
        after = updated(before, [gradient.detach() for gradient in gradients], rates, settings)
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

    def skip(self) -> None:
        """Undo the step count of a step that was not accepted, for the bias correction."""
        self.steps -= 1

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
                self._replace(index, *(value.numpy()[rows] for value in self._of(index)))

    def append(self, network: str, values: Mapping[str, np.ndarray]) -> None:
        """Append rows to every parameter of a network, by name; their moments are zero, their averages equal the
        values.
        """
        for index, (owner, name) in enumerate(self._places):
            if owner == network:
                pairs = zip(self._of(index), _fresh(values[name]), strict=False)
                self._replace(index, *(np.concatenate([value.numpy(), rows]) for value, rows in pairs))

    def _of(self, index: int) -> list[Var]:
        """A parameter, its moments, and its average if there is one."""
        return [values[index] for values in (self.parameters, self.exp_avg, self.exp_avg_sq, self._averages) if values]

    def _replace(
        self, index: int, parameter: np.ndarray, first: np.ndarray, second: np.ndarray, *average: np.ndarray
    ) -> None:
        """Replace a parameter by values of another shape; the Var object remains that of the network."""
        self.parameters[index].update(jt.array(parameter).detach())
        self.parameters[index].start_grad()
        self.exp_avg[index], self.exp_avg_sq[index] = (jt.array(values).stop_grad() for values in (first, second))
        for own, values in zip(self._averages[index : index + 1], average, strict=False):
            own.update(jt.array(values).detach())


def _fresh(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The values with their initial moments and average."""
    added = np.asarray(values, np.float32)
    return added, np.zeros_like(added), np.zeros_like(added), added
