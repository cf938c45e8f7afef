"""The watch over each step's numbers: a step whose loss or gradients are not finite changes no weight.

The verdict is computed on the device, from the step's numbers and from those that Adam makes of them, and gates the
update there. The host reads it in the next step, before that one computes anything: the only time in a step that it
waits for a card. The weights are still those of the refused step then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from data.errors import listed
from models.checkpoints.ours import MOMENTS
from models.kinds.protocol import Batch, Noise
from models.machine.backend import jt
from models.structs import Var

Arrays = Callable[[], Mapping[str, np.ndarray]]  # asked for where a step was refused
UPDATE_WORDS = "the update"
MAX_NAMED = 3  # things a sentence names before it only counts


def fetched(values: Sequence[Var]) -> np.ndarray:
    """The readings on the host, [G + 2]; waits for them."""
    return np.concatenate([value.numpy().reshape(-1) for value in values])


@dataclass(frozen=True)
class StepInputs:
    """All that decides a step besides the weights."""

    step: int  # finished steps before it
    batch: Batch
    noise: Noise | None


@dataclass(frozen=True)
class BadStep:
    """A step that was refused."""

    inputs: StepInputs
    weights: dict[str, np.ndarray]  # "<network>.<name>" -> values before the step, which are those after it too
    readings: np.ndarray  # [G + 2], see `readings`
    findings: tuple[str, ...]  # what was not finite, causes first
    buffers: dict[str, np.ndarray] = field(default_factory=dict)  # what else the kind of model keeps

    def sentence(self) -> str:
        """What was seen."""
        return f"step {self.inputs.step + 1} was skipped: not finite: {listed(self.findings, MAX_NAMED)}"


class Guard:
    """Reads the verdict of each step when the next one asks; counts the refused ones."""

    def __init__(self) -> None:
        self.bad_steps = 0  # in all
        self.bad_in_a_row = 0
        self._pending: tuple[StepInputs, list[Var], Var] | None = None
        self._unreported: list[BadStep] = []

    def watch(self, inputs: StepInputs, values: list[Var], verdict: Var) -> None:
        """Remember a step that was just launched, with its readings and whether it was taken."""
        jt.sync([*values, verdict])  # computed with the step: what waits for `settle` holds on to no graph
        self._pending = (inputs, values, verdict)

    def settle(self, parameters: Mapping[str, Var], moments: Arrays = dict, buffers: Arrays = dict) -> bool:
        """Read the verdict of the last step, if it was not read yet; returns False where the step was refused.

        `moments` gives Adam's as they were before that step, for a finding where the step's own numbers are finite;
        `buffers` the model's.
        """
        if self._pending is None:
            return True
        (inputs, values, verdict), self._pending = self._pending, None
        if verdict.item():
            self.bad_in_a_row = 0
            return True
        seen = fetched(values)
        self.bad_steps += 1
        self.bad_in_a_row += 1
        weights = {name: value.numpy() for name, value in parameters.items()}
        findings = [*find_in_inputs(inputs), *find_in_weights(weights), *find_in_readings(seen, list(parameters))]
        findings = findings or find_in_update(moments())
        self._unreported.append(BadStep(inputs, weights, seen, tuple(findings), dict(buffers())))
        return False

    def take(self) -> list[BadStep]:
        """The refused steps since the last call."""
        taken, self._unreported = self._unreported, []
        return taken

    def forget(self) -> None:
        """Start afresh after the weights were replaced."""
        self.bad_in_a_row = 0
        self._pending = None


def find_in_inputs(inputs: StepInputs) -> list[str]:
    """Which inputs of a step are not finite, in words."""
    arrays = inputs.batch.words()
    if inputs.noise is not None:
        arrays |= {f"the jitter '{name}'": array for name, array in inputs.noise.items()}
    return [name for name, array in arrays.items() if not np.isfinite(array).all()]


def find_in_weights(weights: Mapping[str, np.ndarray]) -> list[str]:
    """Which weights are not finite, in words."""
    return [f"the weights {name}" for name, values in weights.items() if not np.isfinite(values).all()]


def find_in_readings(values: np.ndarray, names: Sequence[str]) -> list[str]:
    """What `readings` of the parameters `names` say is not finite, in words; `find_in_weights` has the rest."""
    words = ["the loss", *(f"the gradient of {name}" for name in names)]
    return [word for word, value in zip(words, values[: len(words)], strict=True) if not np.isfinite(value)]


def find_in_update(moments: Mapping[str, np.ndarray]) -> list[str]:
    """What makes an update of finite gradients infinite: moments that are none, else their sizes."""
    bad = [name for name, values in moments.items() if not np.isfinite(values).all()]
    bad += [name for name, values in moments.items() if name.startswith(MOMENTS[1]) and (values < 0.0).any()]
    return [f"{UPDATE_WORDS} (Adam's {name})" for name in dict.fromkeys(bad)] or [UPDATE_WORDS]
