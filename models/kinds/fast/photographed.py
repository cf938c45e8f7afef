"""The kinds on grids that learn of the photographs too."""

from __future__ import annotations

from models.kinds.fast.model import FastNeuSModel
from models.kinds.fast.nerf import FastNeRFModel
from models.kinds.fast.outputs import PackedOutput, RadianceOutput
from models.kinds.fast.photographs import PhotographsMixin
from models.kinds.protocol import Term
from models.kinds.terms import color_term, squared_term
from models.machine.backend import jt


class PhotographedNeuS(PhotographsMixin, FastNeuSModel):
    """A surface."""

    def color_loss(self, output: PackedOutput) -> Term:
        """As that of NeuS."""
        return color_term(output.rgb, output.target, output.mask)


class PhotographedNeRF(PhotographsMixin, FastNeRFModel):
    """A radiance field."""

    def color_loss(self, output: RadianceOutput) -> Term:
        """As that of NeRF."""
        return squared_term(output.rgb, output.target, jt.ones_like(output.opacity))
