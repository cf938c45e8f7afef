"""Health checks of a training: pure functions of a few numbers per validation, with the usual causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.methods.protocol import LevelSet
from models.training.watch import probe_points

FULL_SHARE = 0.98  # fraction of the sphere inside the surface above which no camera sees the surface from outside
FLAT_VALIDATIONS = 8
FLAT_DB = 0.3  # dB; validations of a run that still improves differ by more
LOW_PSNR = 18.0  # dB; a run with a constant PSNR above it has converged
FALLING_VALIDATIONS = 4
FALLING_SHARE = 0.8  # smaller dips of inv_s occur while the first shape forms
HISTORY = max(FLAT_VALIDATIONS, FALLING_VALIDATIONS + 1)  # number of validations that `findings` uses
SOFT_INV_S = 20.0  # the initial value of training: below it the surface is blurred


@dataclass(frozen=True)
class Vitals:
    """The numbers of one validation."""

    step: int
    inv_s: float | None  # None for methods without inv_s
    lowest: float  # smallest value of the surface field in the unit sphere
    inside_share: float  # fraction of the volume of the unit sphere inside the surface
    psnr: float | None  # dB, mean over the training batches since the previous validation
    surface: LevelSet

    @property
    def level(self) -> float:
        """The level of the surface."""
        return -self.surface.threshold


def vitals(step: int, inv_s: float | None, values: np.ndarray, surface: LevelSet, psnrs: Sequence[float]) -> Vitals:
    """The numbers of a validation: `values` of the surface field at `probe_points`, PSNRs since the previous
    validation.
    """
    finite = [value for value in psnrs if np.isfinite(value)]
    share = float((values < -surface.threshold).mean())
    return Vitals(step, inv_s, float(values.min()), share, float(np.mean(finite)) if finite else None, surface)


def findings(history: Sequence[Vitals]) -> dict[str, str]:
    """The problems after the last validation: kind -> a sentence with the usual cause; {} if there are none."""
    checks = {"empty": _empty, "full": _full, "flat": _flat, "fog": _fog}
    return {kind: text for kind, check in checks.items() if history and (text := check(history))}


def _empty(history: Sequence[Vitals]) -> str:
    last = history[-1]
    if last.lowest <= last.level:
        return ""
    return (
        f"step {last.step}: no surface inside the region of interest ({last.surface.quantity} is above "
        f"{last.lowest:.3f} everywhere in it): usually the region does not contain the object (--mode inspect "
        "draws it, --roi selects another), or the masks are empty or inverted"
    )


def _full(history: Sequence[Vitals]) -> str:
    last = history[-1]
    if last.inside_share < FULL_SHARE:
        return ""
    return (
        f"step {last.step}: the surface fills the whole region of interest ({last.inside_share:.0%} of it is "
        "inside): usually the region is too small for the object (--roi selects another), or the background "
        f"appears on the surface because it is not modelled (use {last.surface.background})"
    )


def _flat(history: Sequence[Vitals]) -> str:
    values = [entry.psnr for entry in history[-FLAT_VALIDATIONS:] if entry.psnr is not None]
    if len(values) < FLAT_VALIDATIONS or max(values) - min(values) >= FLAT_DB or max(values) >= LOW_PSNR:
        return ""
    return (
        f"step {history[-1].step}: batch PSNR has stayed at {np.mean(values):.1f} dB for {FLAT_VALIDATIONS} "
        "validations: usually the cameras do not match the photographs (--mode inspect measures it), or the "
        f"background is not modelled (use {history[-1].surface.background})"
    )


def _fog(history: Sequence[Vitals]) -> str:
    values = [entry.inv_s for entry in history[-FALLING_VALIDATIONS - 1 :] if entry.inv_s is not None]
    falls = all(after < before for before, after in zip(values, values[1:], strict=False))
    if len(values) <= FALLING_VALIDATIONS or not falls:
        return ""
    if values[-1] > FALLING_SHARE * values[0] or values[-1] > SOFT_INV_S:
        return ""
    return (
        f"step {history[-1].step}: inv_s has fallen over {FALLING_VALIDATIONS} validations, from "
        f"{values[0]:.1f} to {values[-1]:.1f}, and the surface becomes more blurred: usually cameras and "
        "photographs are inconsistent, the region of interest is far too large (--roi selects another), or the "
        f"background is not modelled (use {history[-1].surface.background})"
    )


class Health:
    """Examines a training at its validations. Each kind of problem is reported once until it disappears."""

    def __init__(self) -> None:
        self._vitals: list[Vitals] = []
        self.psnrs: list[float] = []  # dB, logged since the last validation
        self._reported: set[str] = set()

    def examine(self, step: int, inv_s: float | None, surface: LevelSet | None) -> list[str]:
        """The new problems at a validation; [] without a surface, or if its field is not finite (see `Guard`)."""
        if surface is None:
            return []
        values = surface.outward(probe_points())
        if not np.isfinite(values).all():
            return []
        self._vitals = [*self._vitals, vitals(step, inv_s, values, surface, self.psnrs)][-HISTORY:]
        self.psnrs = []
        problems = findings(self._vitals)
        new, self._reported = problems.keys() - self._reported, set(problems)
        return [problems[kind] for kind in problems if kind in new]
