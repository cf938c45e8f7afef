"""The conf blocks about photographs: their comparison, and what is learned of them. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.strict import Auto, ConfigError, limits, rate

MOST_NEIGHBOURS = 32  # of a photograph
EXPOSURE = "exposure"  # name of the network in checkpoints


@dataclass(frozen=True)
class PhotographsConfig:
    """Exposure and white balance of each photograph, not learned by default."""

    exposure: bool | Auto = False
    exposure_rate: float = rate(0.3)


@dataclass(frozen=True)
class PatchesConfig:
    """The patch comparison across photographs."""

    radius: int = limits(3, at_least=1, at_most=10)
    neighbours: int = limits(8, at_least=1, at_most=MOST_NEIGHBOURS)
    best: int = limits(4, at_least=1, at_most=MOST_NEIGHBOURS)

    def check(self) -> None:
        """Raises ConfigError if `best` exceeds the number of neighbours."""
        if self.best > self.neighbours:
            raise ConfigError(f"model.patches.best = {self.best}: must not be above neighbours = {self.neighbours}")
