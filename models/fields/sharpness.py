"""The learned sharpness of the density: inv_s = exp(10 * variance), 1/s of the paper's logistic density."""

from __future__ import annotations

import numpy as np

from models.fields.conf import VarianceConfig
from models.machine.backend import jt
from models.ops.elementwise import hard_clip
from models.structs import Var

# The exponent's factor makes one scalar learn at a useful pace under the networks' learning rate.
EXPONENT_SCALE = 10.0
MAX_EXPONENT = 80.0  # far beyond both ends; exp of anything above 88 is infinite, and its gradient then NaN
INV_S_MIN, INV_S_MAX = 1e-6, 1e6  # beyond them the sigmoid of sdf * inv_s is a constant or a step in float32


class SingleVarianceNetwork(jt.nn.Module):
    """One parameter, under its published name `variance`."""

    def __init__(self, conf: VarianceConfig) -> None:
        super().__init__()
        self.variance = jt.array(np.array([conf.init_val], np.float32))

    def execute(self) -> Var:
        """inv_s, shape [1]; a hard clip, with no gradient beyond its ends."""
        exponent = hard_clip(self.variance * EXPONENT_SCALE, -MAX_EXPONENT, MAX_EXPONENT)
        return hard_clip(exponent.exp(), INV_S_MIN, INV_S_MAX)
