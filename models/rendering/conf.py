"""The blocks of confs that losses read. Knows no Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.strict import ConfigError, limits


@dataclass(frozen=True)
class PatchesConfig:
    """The comparison of patches across photographs; times are shares of train.end_iter."""

    weight: float = limits(0.0, at_least=0)
    begins: float = limits(0.2, at_least=0, at_most=1)
    radius: int = limits(3, at_least=1, at_most=10)
    neighbours: int = limits(8, at_least=1, at_most=32)
    best: int = limits(4, at_least=1)

    def check(self) -> None:
        """Raises ConfigError where more of the neighbours are to agree than there are."""
        if self.best > self.neighbours:
            raise ConfigError(f"model.patches.best = {self.best}: must not be above neighbours = {self.neighbours}")
