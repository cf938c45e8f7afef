"""The block `model.photographs`: properties of photographs that are learned with the scene. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.strict import Auto, rate

EXPOSURE = "exposure"  # name of the network in checkpoints


@dataclass(frozen=True)
class PhotographsConfig:
    """Exposure and white balance of each photograph, not learned by default."""

    exposure: bool | Auto = False
    exposure_rate: float = rate(0.3)
