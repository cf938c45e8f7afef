"""The trained parameters and their moments, network by network; a step of Adam over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.checkpoints.ours import MOMENTS
from models.machine.backend import jt
from models.ops.update import BETA_1, BETA_2, EPSILON, AdamStep, Update, adam
from models.structs import Var


class Adam:
    """Parameters with their moments; `steps` counts the updates made. A `models.kinds.protocol.Parameters`."""

    def __init__(
        self, networks: Mapping[str, Mapping[str, Var]], beta_2: float = BETA_2, epsilon: float = EPSILON
    ) -> None:
        """`networks`: network -> name -> parameter, in the order in which they are optimised."""
        self.beta_2, self.epsilon = beta_2, epsilon
        named = {(network, name): value for network, values in networks.items() for name, value in values.items()}
        self.names = [f"{network}.{name}" for network, name in named]
        self.parameters = list(named.values())
        self.reset_moments()
        self._networks = [network for network, _ in named]
        self._places = {key: index for index, key in enumerate(named)}

    def step(
        self,
        gradients: Sequence[Var],
        learning_rate: float,
        accepted: Var | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> Var:
        """Update all parameters in place and start the computation; does not wait for it.

        Returns whether the step was taken, bool [1]: `accepted`, and every number that it makes is finite. Where it
        turns out False nothing changes but `steps`: take that back with `refuse`.

        Args:
            gradients: in the order of the parameters.
            factors: on the learning rate, by network or `<network>.<name>`; 1 where neither is named.
        """
        if len(gradients) != len(self.parameters):
            raise ValueError(f"{len(gradients)} gradients for {len(self.parameters)} parameters")
        steps = self.steps + 1
        rate = learning_rate / (1.0 - BETA_1**steps)
        factors = factors or {}
        owners = zip(self.names, self._networks, strict=True)
        rates = [rate * factors.get(name, factors.get(network, 1.0)) for name, network in owners]
        may_be = jt.array(np.ones(1, bool)) if accepted is None else accepted
        before = Update(self.parameters, self.exp_avg, self.exp_avg_sq, may_be)
        layout = AdamStep.after(steps, self.beta_2, self.epsilon)
        after = adam(before, [gradient.detach() for gradient in gradients], rates, layout)
        # Outside no_grad: within it Jittor would freeze the parameters for ever.
        parameters = [value.detach() for value in after.parameters]
        # An allocation that fails is met here: weights, moments and `steps` are still those of the step before.
        jt.sync([*parameters, *after.exp_avg, *after.exp_avg_sq, after.taken])
        for parameter, value in zip(self.parameters, parameters, strict=True):
            parameter.update(value)
        self.exp_avg, self.exp_avg_sq, self.steps = after.exp_avg, after.exp_avg_sq, steps
        return after.taken

    @property
    def named_parameters(self) -> dict[str, Var]:
        """`<network>.<name>` -> parameter, in order."""
        return dict(zip(self.names, self.parameters, strict=True))

    @property
    def named_moments(self) -> dict[str, dict[str, np.ndarray]]:
        """Moment -> `<network>.<name>` -> copy, as checkpoints have them."""
        groups = zip(MOMENTS, (self.exp_avg, self.exp_avg_sq), strict=True)
        return {
            moment: {name: value.numpy() for name, value in zip(self.names, values, strict=True)}
            for moment, values in groups
        }

    def refuse(self) -> None:
        """The last step was not accepted: the bias correction does not count it."""
        self.steps -= 1

    def restore(self, steps: int, exp_avg: Sequence[np.ndarray], exp_avg_sq: Sequence[np.ndarray]) -> None:
        """Go on from saved moments, in the order of the parameters."""
        self.steps = steps
        self.exp_avg = [jt.array(values).stop_grad() for values in exp_avg]
        self.exp_avg_sq = [jt.array(values).stop_grad() for values in exp_avg_sq]

    def reset_moments(self) -> None:
        """Start the moments and their bias correction anew, as at the first step."""
        self.steps = 0
        self.exp_avg = [jt.zeros_like(p).stop_grad() for p in self.parameters]
        self.exp_avg_sq = [jt.zeros_like(p).stop_grad() for p in self.parameters]

    def keep(self, network: str, rows: np.ndarray) -> None:
        """Cut every parameter of a network, and its moments, to these rows in this order; rows may repeat."""
        for (owner, _), index in self._places.items():
            if owner == network:
                self._replace(index, *(values[index].numpy()[rows] for values in self._values()))

    def append(self, network: str, values: Mapping[str, np.ndarray]) -> None:
        """Add rows to every parameter of a network, by name; their moments start at zero."""
        for (owner, name), index in self._places.items():
            if owner == network:
                added = np.asarray(values[name], np.float32)
                rows = (added, np.zeros_like(added), np.zeros_like(added))
                kept = (entries[index].numpy() for entries in self._values())
                self._replace(index, *(np.concatenate(pair) for pair in zip(kept, rows, strict=True)))

    def replace(self, network: str, name: str, values: np.ndarray) -> None:
        """Other values for one parameter; its moments start at zero."""
        added = np.asarray(values, np.float32)
        self._replace(self._places[network, name], added, np.zeros_like(added), np.zeros_like(added))

    def _values(self) -> tuple[list[Var], list[Var], list[Var]]:
        """Parameters and moments."""
        return self.parameters, self.exp_avg, self.exp_avg_sq

    def _replace(self, index: int, parameter: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
        """Other values, of another shape, for one parameter; the Var stays the network's own."""
        self.parameters[index].update(jt.array(parameter).detach())
        self.parameters[index].start_grad()
        self.exp_avg[index], self.exp_avg_sq[index] = (jt.array(values).stop_grad() for values in (first, second))
