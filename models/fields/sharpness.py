"""The learned inv_s."""

from __future__ import annotations

import numpy as np

from models.fields.conf import VarianceConfig
from models.machine.backend import jt
from models.ops.sharpness import EXPONENT_SCALE, sharpness
from models.structs import Var


class SingleVarianceNetwork(jt.nn.Module):
    """One parameter with its published name `variance`."""

    def __init__(self, conf: VarianceConfig) -> None:
        super().__init__()
        self.variance = jt.array(np.array([conf.init_val], np.float32))

    def begin_with(self, inv_s: float) -> None:
        """Reset the parameter."""
        self.variance.update(jt.array(np.array([np.log(inv_s) / EXPONENT_SCALE], np.float32)))
        self.variance.start_grad()

    def execute(self) -> Var:
        """inv_s, shape [1]."""
        return sharpness(self.variance)
