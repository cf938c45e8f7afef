"""The block `model.photographs`: properties of photographs that are learned with the scene. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.strict import limits, rate, weight

EXPOSURE = "exposure"  # name of the network in checkpoints


@dataclass(frozen=True)
class PhotographsConfig:
    """Exposure and white balance of each photograph, not learned by default."""

    exposure: bool = False
    # Smallest `exposure_spread` in stops at which exposure is learned; only for methods that render rays.
    exposure_from: float = limits(0.0, at_least=0, at_most=100)
    exposure_rate: float = rate(0.3)
    exposure_weight: float = weight(0.01)
