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

    def reset(self, inv_s: float) -> None:
        """Replace the parameter by that of this inv_s."""
        self._replace(jt.array(np.array([np.log(inv_s) / EXPONENT_SCALE], np.float32)))

    def limit(self, inv_s: float) -> None:
        """Reduce the parameter to that of this inv_s if it is larger; does not wait for the device.

        A parameter that is not finite becomes NaN, which `jt.minimum` would hide on CUDA.
        """
        most = np.log(inv_s) / EXPONENT_SCALE
        self._replace((self.variance - jt.maximum(self.variance - most, 0.0)).detach())

    def _replace(self, parameter: Var) -> None:
        self.variance.update(parameter)
        self.variance.start_grad()

    def execute(self) -> Var:
        """inv_s, shape [1]."""
        return sharpness(self.variance)
