"""The terms of a radiance field's training loss (NeRF, arXiv 2003.08934, eq. 6)."""

from __future__ import annotations

from dataclasses import replace

from models.config.blocks import TrainConfig
from models.kinds.nerf.outputs import Comparison
from models.kinds.protocol import Term
from models.kinds.terms import mask_term, squared_term


def radiance_terms(seen: Comparison, conf: TrainConfig) -> dict[str, Term]:
    """The squared errors of both passes and, by its weight, the mean of their mask losses.

    Without a mask weight every ray counts, whatever the photograph shows behind the object; with one, as for NeuS,
    colours count within the mask and opacities everywhere.
    """
    render, target, mask = seen.render, seen.target, seen.mask
    fine, coarse = (mask_term(opacity, mask) for opacity in (render.opacity, render.coarse_opacity))
    return {
        "fine": squared_term(render.rgb, target, mask),
        "coarse": squared_term(render.coarse_rgb, target, mask),
        "mask": replace(fine, total=(fine.total + coarse.total) * 0.5, weight=conf.mask_weight),
    }
