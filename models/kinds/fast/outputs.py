"""What a packed rendering hands on. R rays."""

from __future__ import annotations

from dataclasses import dataclass, field

from models.structs import OF_THE_BATCH, Var


@dataclass(frozen=True)
class PackedOutput:
    """What some rays show beside what the photographs show there."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1]
    target: Var  # [R, 3]
    mask: Var  # [R, 1], 0 or 1
    inv_s: Var = field(metadata=OF_THE_BATCH)  # [1]


@dataclass(frozen=True)
class RadianceOutput:
    """The same of a radiance field."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1]
    target: Var  # [R, 3]
