"""The terms of NeuS's training loss (arXiv 2106.10689, section 3.4). A table: another term is another entry."""

from __future__ import annotations

from collections.abc import Callable

from models.config.blocks import TrainConfig
from models.kinds.neus.outputs import Comparison
from models.kinds.protocol import Term
from models.kinds.terms import color_term, eikonal_term, mask_term

TermOf = Callable[[Comparison, TrainConfig], Term]


def _color(seen: Comparison, conf: TrainConfig) -> Term:
    """Colours within the mask."""
    del conf
    return color_term(seen.render.rgb, seen.target, seen.mask)


def _eikonal(seen: Comparison, conf: TrainConfig) -> Term:
    """A distance has a gradient of length 1."""
    return eikonal_term(seen.render.sdf_gradient, seen.render.near_sphere, conf.igr_weight)


def _mask(seen: Comparison, conf: TrainConfig) -> Term:
    """Opacities against the mask."""
    return mask_term(seen.render.opacity, seen.mask, conf.mask_weight)


TERMS: dict[str, TermOf] = {"color": _color, "eikonal": _eikonal, "mask": _mask}
