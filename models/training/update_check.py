"""Find the entries of an optimiser's update that are NaN or infinite, and their inputs.

An update that is not finite is never stored, so it cannot be read back: NumPy recomputes it, in float64 as the
operation on the CPU and in float32 as on CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.update import Update
from models.training import optimizer
from models.training.optimizers import RULES, UpdateSettings

INPUTS = ("weight", "gradient", "exp_avg", "exp_avg_sq")  # inputs of the update of an entry


@dataclass(frozen=True)
class Entries:
    """Entries of one parameter and the inputs of their update; float32 arrays of equal shape."""

    weight: np.ndarray
    gradient: np.ndarray
    exp_avg: np.ndarray
    exp_avg_sq: np.ndarray


@dataclass(frozen=True)
class UpdateFault:
    """A parameter with an update that is not finite."""

    name: str  # <network>.<name>
    count: int  # number of entries that are not finite; 0 if only the operation finds any
    ranges: Mapping[str, tuple[float, float]]  # by INPUTS, ranges over the entries found

    def words(self) -> str:
        """The fault as part of a sentence."""
        if not self.count:
            return f"NaN or Inf in the update of {self.name}, which is finite in NumPy"
        spans = [f"{name} {_span(*self.ranges[name])}" for name in INPUTS if name in self.ranges]
        return f"{self.count} NaN or Inf in the update of {self.name} ({', '.join(spans)} in these entries)"


def _span(low: float, high: float) -> str:
    """A range of numbers, or the single number."""
    return f"{low:.3g}" if low == high or math.isnan(low) else f"{low:.3g} to {high:.3g}"


def updated(entries: Entries, rate: float, settings: UpdateSettings, kind: type[np.floating]) -> np.ndarray:
    """New weights, first and second moments in `kind`, [3, ...], by the rule; `rate` is that of the parameter."""
    value, gradient, first, second = (getattr(entries, name).astype(kind) for name in INPUTS)
    with np.errstate(all="ignore"):
        return np.stack(RULES[settings.optimizer](value, gradient, first, second, rate, settings))


def is_updated(entries: Entries, rate: float, settings: UpdateSettings) -> bool:
    """Whether the active form of the operation gives finite values for these entries."""
    parts = {name: jt.array(np.ascontiguousarray(getattr(entries, name).reshape(-1))) for name in INPUTS}
    before = Update([parts["weight"]], [parts["exp_avg"]], [parts["exp_avg_sq"]], jt.array(np.ones(1, bool)))
    return bool(optimizer.updated(before, [parts["gradient"]], [rate], settings).taken.item())


def find_faults(parameters: Mapping[str, Entries], settings: UpdateSettings) -> list[UpdateFault]:
    """The parameters with an update that is not finite: found by NumPy, otherwise by the operation."""
    found = []
    for name, entries in parameters.items():
        rate = settings.rate(name)
        with np.errstate(over="ignore"):  # stored values are float32 for any type of computation
            made = [updated(entries, rate, settings, kind).astype(np.float32) for kind in (np.float64, np.float32)]
        is_bad = ~np.isfinite(np.concatenate(made)).all(axis=0)
        if is_bad.any():
            values = {part: getattr(entries, part)[is_bad] for part in INPUTS}
            ranges = {part: (float(bad.min()), float(bad.max())) for part, bad in values.items()}
            found.append(UpdateFault(name, int(is_bad.sum()), ranges))
    return found or [
        UpdateFault(name, 0, {})
        for name, entries in parameters.items()
        if not is_updated(entries, settings.rate(name), settings)
    ]


def gathered(
    weights: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray], moments: Mapping[str, Mapping]
) -> dict[str, Entries]:
    """The entries of each parameter, by name."""
    return {
        name: Entries(weight, gradients[name], moments["exp_avg"][name], moments["exp_avg_sq"][name])
        for name, weight in weights.items()
    }
