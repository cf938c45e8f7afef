"""Kinds on grids that learn of the photographs too: exposure and white balance of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data.scenes.scene import Scene
from models.fields.photographs import AFFINE, Exposure
from models.fields.state import take_rows
from models.kinds.protocol import Moment, Noise, Objective, Term
from models.machine.backend import jt
from models.structs import Var

EXPOSURE = "exposure"  # the network


class PhotographsMixin:
    """Before a `PackedModel` in the order of bases."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.exposure = Exposure()

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Those of the scene, then that of the photographs."""
        return super().networks | {EXPOSURE: self.exposure}

    def rates(self, step: int) -> Mapping[str, float]:
        """Colours of photographs have a rate of their own."""
        return {**super().rates(step), EXPOSURE: self.conf.photographs.exposure_rate}

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> Any:
        """The rows are those of the scene's photographs."""
        take_rows(self.exposure, {"affine": (scene.n_views, AFFINE)})
        return super().sampler(scene, batch_size, generator)

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Take on the number of photographs."""
        super().adapt(shapes)
        if EXPOSURE in shapes:
            take_rows(self.exposure, shapes[EXPOSURE])

    def objective(self, batch: Any, noise: Noise | None, moment: Moment, settled: Any = None) -> Objective:
        """That of the scene, with colours as the photographs have them."""
        found = super().objective(batch, noise, moment, settled)
        output = replace(found.output, rgb=self.exposure(found.output.rgb, jt.array(batch.view)))
        # A share for each part of the batch, so that the parts add up to the whole.
        size = self.exposure.changes().sqr().mean() * float(len(batch))
        own = {
            "color": self.color_loss(output),
            EXPOSURE: Term(size, float(len(batch)), self.conf.photographs.exposure_weight),
        }
        return Objective(found.terms | own, output)

    def color_loss(self, output: Any) -> Term:
        """The colour's term, from the output of an objective."""
        raise NotImplementedError

    def scalars(self, output: Any, losses: Mapping[str, Var]) -> dict[str, Var]:
        """With how far colours are from the identity."""
        return super().scalars(output, losses) | {"Loss/exposure_loss": losses[EXPOSURE]}
