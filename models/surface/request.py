"""What mesh is wanted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeshRequest:
    """A mesh as the flags or the conf ask for it."""

    resolution: int  # grid points per axis
    threshold: float | None = None  # the level that is meshed; None for the model's own
