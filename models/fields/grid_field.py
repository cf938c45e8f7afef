"""Base class of fields on grids: a feature table and a small network (Instant-NGP, arXiv 2201.05989).

A training activates the levels one after the other (Neuralangelo, arXiv 2306.03092, section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from models.fields.conf import GridConfig
from models.fields.layers import Layered
from models.machine.backend import jt
from models.ops.grid_sdf import active_weights, with_network
from models.ops.network import Weights
from models.ops.sizes import FEATURES, GridSizes
from models.structs import Var

FIRST_FEATURES = 1e-4  # features are initialised uniformly between plus and minus this (Instant-NGP, section 4)


class GridField(Layered):
    """Grid and network with the first `active` levels."""

    def __init__(
        self, conf: GridConfig, rng: np.random.Generator, layers: Iterable[tuple[np.ndarray, np.ndarray]]
    ) -> None:
        """`layers`: weight [out, in] and bias [out] of each, drawn after the table."""
        super().__init__()
        self.conf = conf
        self.active = conf.levels
        self.table = first_table(conf.sizes, rng)
        self.add_layers(layers, weight_norm=False)

    def activate(self, first: int, progress: float) -> None:
        """Activate `first` levels at progress 0, and further ones at equal intervals, all at progress 1."""
        levels = self.conf.levels
        first = min(first, levels)
        self.active = min(levels, first + int((levels - first + 1) * progress))

    @property
    def sizes(self) -> GridSizes:
        """The layout of the active levels, with the network."""
        conf = self.conf
        return with_network(
            replace(conf.sizes, active=self.active), [conf.d_hidden] * conf.n_layers, 1 + conf.d_feature
        )

    def weights(self, sizes: GridSizes) -> Weights:
        """The current layers for the operations with this layout."""
        return active_weights([(layer.matrix(), layer.bias) for layer in self.layers()], sizes)


def first_table(sizes: GridSizes, rng: np.random.Generator) -> Var:
    """The initial features of a grid, [rows, FEATURES]."""
    values = rng.uniform(-FIRST_FEATURES, FIRST_FEATURES, (sizes.rows, FEATURES))
    return jt.array(values.astype(np.float32))
