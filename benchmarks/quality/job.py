"""The input of a process that trains or measures, and the paths in the folder of its run. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CONF = "run.conf"  # the run's conf with every key spelt out


@dataclass(frozen=True)
class Measurement:
    """The metrics of a run and their options."""

    ground_truth: str  # a mesh in the unit-sphere frame; "" for none
    points: str  # a .ply in that frame; "" for none
    threshold: float  # of the F-score, in radii of the unit sphere
    samples: int  # points on either surface
    resolution: int  # grid points of the mesh, per axis
    level: int  # held-out views are rendered at one part in so many of their width and height
    views: int  # at most so many of them, evenly spread; 0 for all


def weights_file(folder: Path, step: int) -> Path:
    """Where the weights of a step lie."""
    return folder / f"weights_{step:08d}.npz"
