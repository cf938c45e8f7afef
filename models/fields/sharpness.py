"""The learned inv_s."""

from __future__ import annotations

import numpy as np

from models.fields.conf import VarianceConfig
from models.machine.backend import jt
from models.ops.sharpness import sharpness
from models.structs import Var


class SingleVarianceNetwork(jt.nn.Module):
    """One parameter with its published name `variance`."""

    def __init__(self, conf: VarianceConfig) -> None:
        super().__init__()
        self.variance = jt.array(np.array([conf.init_val], np.float32))

    def execute(self) -> Var:
        """inv_s, shape [1]."""
        return sharpness(self.variance)
