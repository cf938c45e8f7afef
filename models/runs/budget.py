"""The time of a command that trains: the training gets what its other parts leave, and its steps follow."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from data.io.clock import Times, slowdown
from data.io.streams import say

if TYPE_CHECKING:
    from models.runs.measured import Pace

# Seconds of what comes after the steps, without other processes on two cores: the report and the start of each mode;
# and per photograph, visibility and colours of a mesh of ITS_RESOLUTION.
CLOSING, PER_PHOTOGRAPH, ITS_RESOLUTION = 12.0, 1.0, 512
# Fraction of the training's time for steps; images, meshes and checkpoints take the rest. It is rather too large: a
# training that ends in the last tenth of its schedule loses nothing, one that ends early loses its time.
STEPPING = 0.95
OPTIONAL = 0.5  # of the command, after which no further attempt at cameras goes on
DEPTH, MEASURING = 0.1, 0.05  # of the command, at most, for depth maps, and about for measuring
WORTH = 0.1  # of the command: a training is continued for more
COLD = 10.0  # seconds of compiling from which on the cache was cold


@dataclass(frozen=True)
class Budget:
    """The time of a command."""

    seconds: float  # of --minutes
    started: float  # moment of time.perf_counter()
    after: float = 0.0  # seconds of mesh, metrics and report, estimated, without other processes
    compiling: float = 0.0  # seconds of compiling on a cold cache, which --minutes does not include

    def for_scene(self, photographs: int, resolution: int, details: float) -> Budget:
        """The budget with the time after the training, for a mesh of --resolution with `details` seconds for these."""
        colours = PER_PHOTOGRAPH * photographs * (resolution / ITS_RESOLUTION) ** 2
        return replace(self, after=CLOSING + colours + details)

    def moment(self, share: float) -> float:
        """The moment of time.perf_counter() at which this share of the command is over."""
        return self.started + self.compiling + share * self.seconds

    def end_of_training(self, slower: float) -> float:
        """The moment of time.perf_counter() when the training must end; `slower`: the `slowdown` of what follows."""
        return self.moment(1.0) - slower * self.after

    def steps(self, pace: Pace) -> int:
        """The steps that fit from now on; negative if the time is over before the first one."""
        return int((self.end_of_training(pace.slowdown) - time.perf_counter()) * STEPPING / pace.seconds)

    def more_steps(self, step: int, seconds: float, slower: float) -> int:
        """The steps that fit into the time that a training of `step` steps left, which took `seconds`.

        At most as many as it had; 0 if the time is not WORTH it.
        """
        left = self.end_of_training(slower) - time.perf_counter()
        return min(step, int(left * STEPPING * step / max(seconds, 1e-3))) if left > WORTH * self.seconds else 0


def on_cold_cache(times: Times) -> float:
    """The seconds of compiling in these phases, 0 where the cache was warm."""
    spent = times["compiling"].wall if "compiling" in times else 0.0
    return spent if spent > COLD * slowdown() else 0.0


def announce(given: Budget, pace: Pace, steps: int, fitting: int) -> bool:
    """Print what the command will take; returns whether its time can be kept with `steps`, where `fitting` fit."""
    if given.compiling:
        say(
            f"compiling took {given.compiling:.0f} s, which --minutes does not include; images and mesh compile a few "
            "more kernels, once per machine"
        )
    so_far = time.perf_counter() - given.started
    training, after = steps * pace.seconds / STEPPING, pace.slowdown * given.after
    can_be_kept = steps <= fitting
    if not can_be_kept:
        say(
            f"--minutes {given.seconds / 60:g} is too short: {so_far:.0f} s have passed, mesh and report "
            f"take about {after:.0f} s, and {steps} steps are the least"
        )
    say(
        f"the whole command will take about {(so_far + training + after) / 60:.1f} minutes: {so_far:.0f} s so far, "
        f"training {training:.0f} s, mesh and report {after:.0f} s"
    )
    return can_be_kept
