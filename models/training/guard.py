"""Checks the values of each step: a step that is not finite changes no weight.

The check runs on the device, on the readings of the step and of the update, and masks the update there. The host reads
its result in the next step, when the gradient of that step was launched and its update was not: a GPU has work while
the host waits, which it does nowhere else in a step, and the weights are still those before the skipped step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from data.errors import listed
from models.machine.backend import jt
from models.methods.protocol import Batch
from models.ops.later import Later
from models.structs import Noise, Var
from models.training.gradient import TOTAL, BatchGradient
from models.training.optimizer import UpdateSettings, faults

# moment -> "<network>.<name>" -> values; called if a step was skipped
Moments = Callable[[], Mapping[str, Mapping[str, np.ndarray]]]
MAX_NAMED = 3  # number of findings in a sentence; further ones are counted


@dataclass(frozen=True)
class BadStep:
    """A skipped step."""

    step: int  # its number, counted from 1
    weights: dict[str, np.ndarray]  # "<network>.<name>" -> values before the step, which are also those after it
    findings: tuple[str, ...]  # what was not finite, causes first

    def sentence(self) -> str:
        """The findings as one sentence."""
        return f"step {self.step} skipped: {listed(self.findings, MAX_NAMED)}"


class Guard:
    """Reads the result of each step's check in the next step; counts the skipped ones."""

    def __init__(self) -> None:
        self.steps = 0  # of this session
        self.bad_steps = 0  # of these, the skipped ones
        self.bad_in_a_row = 0
        self._pending: tuple[Callable[..., BadStep], Later] | None = None
        self._unreported: list[BadStep] = []

    @property
    def has_taken(self) -> bool:
        """Whether any step of this session was taken and not skipped, as far as is known."""
        return self.bad_steps < self.steps

    def watch(self, taken: Var, readings: list[Var], *given: Any) -> None:
        """Remember a step that was just launched: whether it was taken, bool [1], its `models.ops.update.readings`, and
        the other arguments of `_examined`.
        """
        self.steps += 1
        jt.sync([*readings, taken])  # references no graph: the values are computed with the step
        self._pending = (partial(_examined, readings, *given), Later(taken))

    def finish_step(self, parameters: Mapping[str, Var], moments: Moments = dict) -> bool:
        """Read the result of the last step, if not read yet; returns False if the step was skipped.

        `moments` returns those before that step.
        """
        if self._pending is None:
            return True
        (examined, taken), self._pending = self._pending, None
        if taken.read().all():
            self.bad_in_a_row = 0
            return True
        self.bad_steps += 1
        self.bad_in_a_row += 1
        weights = {name: value.numpy() for name, value in parameters.items()}
        self._unreported.append(examined(weights, moments()))
        return False

    def skipped_steps(self) -> list[BadStep]:
        """The skipped steps since the last call."""
        skipped, self._unreported = self._unreported, []
        return skipped

    def forget(self) -> None:
        """Reset after the weights were replaced."""
        self.bad_in_a_row = 0
        self._pending = None


def _examined(
    readings: list[Var],
    step: int,
    batch: Batch,
    noise: Noise | None,
    gradient: BatchGradient,
    settings: UpdateSettings,
    weights: dict[str, np.ndarray],
    moments: Mapping[str, Mapping[str, np.ndarray]],
) -> BadStep:
    """A skipped step with its findings; `step`: finished steps before it."""
    gradients = {name: value.numpy() for name, value in zip(weights, gradient.gradients, strict=True)}
    norms = np.concatenate([value.numpy().reshape(-1) for value in readings])[1:]
    findings = [*find_in_inputs(batch, noise), *find_in_weights(weights)]
    findings += find_in_losses({name: float(value.item()) for name, value in gradient.losses.items()})
    findings += find_in_gradients(gradients, norms)
    findings = findings or faults(weights, gradients, moments, settings)
    return BadStep(step + 1, weights, tuple(findings or ["an overflow in a sum over all parameters"]))


def find_in_inputs(batch: Batch, noise: Noise | None) -> list[str]:
    """The inputs of a step that are not finite, in words."""
    arrays = batch.words()
    if noise is not None:
        arrays |= {f"the jitter '{name}'": array for name, array in noise.items()}
    return _not_finite(arrays)


def find_in_weights(weights: Mapping[str, np.ndarray]) -> list[str]:
    """The weights that are not finite, in words."""
    return _not_finite({f"the weights {name}": values for name, values in weights.items()})


def find_in_losses(losses: Mapping[str, float]) -> list[str]:
    """The losses that are not finite, in words; their weighted sum only if no other is."""
    bad = {name: "NaN" if np.isnan(value) else "Inf" for name, value in losses.items() if not np.isfinite(value)}
    terms = [f"{what} in the {name} loss" for name, what in bad.items() if name != TOTAL]
    return terms or [f"{what} in the loss" for what in bad.values()]


def find_in_gradients(gradients: Mapping[str, np.ndarray], norms: np.ndarray) -> list[str]:
    """The gradients that are not finite, or whose L1 norm is not, in words."""
    findings = []
    for (name, gradient), norm in zip(gradients.items(), norms, strict=False):
        if not np.isfinite(norm):
            largest = np.abs(gradient).max(initial=0.0)
            too_large = f"an overflow in the gradient of {name} (its largest entry is {largest:.3g})"
            findings += _not_finite({f"the gradient of {name}": gradient}) or [too_large]
    return findings


def _not_finite(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """The arrays that are not finite, with the number of such entries."""
    counts = {words: int(np.count_nonzero(~np.isfinite(array))) for words, array in arrays.items()}
    return [f"{count} NaN or Inf in {words}" for words, count in counts.items() if count]
