"""The time of `--mode reconstruct`: --minutes is that of the whole command, the training gets what the rest leaves."""

from __future__ import annotations

import time
from dataclasses import dataclass

from data.io.streams import say
from models.training.pace import Pace

# Seconds of what comes after the steps, measured on two cores: the report and the start of each mode; and per
# photograph, visibility and colours of a mesh of ITS_RESOLUTION.
CLOSING, PER_PHOTOGRAPH, ITS_RESOLUTION = 12.0, 0.8, 512
STARTING = 10.0  # seconds of a training before its first step: depth maps
# Fraction of the training's time for steps; images, meshes and checkpoints take the rest. A slower training ends early.
STEPPING = 0.86
COLD = 10.0  # seconds of compiling from which on the cache was cold


@dataclass(frozen=True)
class Budget:
    """The time of a command."""

    seconds: float  # in all, without compiling on a cold cache
    started: float  # moment of time.perf_counter()
    after: float  # seconds of mesh, metrics and report, estimated

    def end_of_training(self, pace: Pace) -> float:
        """The moment of time.perf_counter() when the training must end."""
        return self.started + self.seconds + added_by_compiling(pace) - self.after

    def steps(self, pace: Pace) -> int:
        """The steps that fit; negative if the time is over before the first one."""
        left = self.end_of_training(pace) - time.perf_counter() - STARTING
        return int(STEPPING * left / pace.seconds)


def budget(minutes: float, started: float, photographs: int, resolution: int, slowdown: float) -> Budget:
    """The budget of --minutes for a scene with this number of photographs and a mesh of --resolution."""
    after = CLOSING + PER_PHOTOGRAPH * photographs * (resolution / ITS_RESOLUTION) ** 2
    return Budget(60.0 * minutes, started, slowdown * after)


def added_by_compiling(pace: Pace) -> float:
    """Seconds of compiling that --minutes does not include: those of a cold cache."""
    return pace.compiling if pace.compiling > COLD * pace.slowdown else 0.0


def announce(given: Budget, pace: Pace, steps: int, fitting: int) -> bool:
    """Print what the command will take; returns whether its time can be kept with `steps`, where `fitting` fit."""
    if more := added_by_compiling(pace):
        say(
            f"compiling took {more:.0f} s, which --minutes does not include; images and mesh compile a few more "
            "kernels, once per machine"
        )
    so_far = time.perf_counter() - given.started
    training = STARTING + steps * pace.seconds / STEPPING
    total = so_far + training + given.after
    can_be_kept = steps <= fitting
    if not can_be_kept:
        say(
            f"--minutes {given.seconds / 60:g} is too short: {so_far:.0f} s have passed, mesh and report take about "
            f"{given.after:.0f} s, and {steps} steps are the least"
        )
    say(
        f"the whole command will take about {total / 60:.1f} minutes: {so_far:.0f} s so far, training "
        f"{training:.0f} s, mesh and report {given.after:.0f} s"
    )
    return can_be_kept
