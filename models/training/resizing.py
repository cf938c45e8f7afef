"""How a kind changes the number of its parameters: what belongs to them follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.training.ema import WeightAverage
from models.training.optimizer import Adam


@dataclass(frozen=True)
class Resizing:
    """The parameters as a kind may change them; a `models.kinds.protocol.Parameters`."""

    optimizer: Adam
    average: WeightAverage | None

    def keep(self, network: str, rows: np.ndarray) -> None:
        """Parameters, moments and averages."""
        for owner in (self.optimizer, self.average):
            if owner is not None:
                owner.keep(network, rows)

    def append(self, network: str, values: Mapping[str, np.ndarray]) -> None:
        """Likewise."""
        for owner in (self.optimizer, self.average):
            if owner is not None:
                owner.append(network, values)

    def replace(self, network: str, name: str, values: np.ndarray) -> None:
        """Likewise."""
        for owner in (self.optimizer, self.average):
            if owner is not None:
                owner.replace(network, name, values)
