"""The terms of NeuS's training loss (arXiv 2106.10689, section 3.4). A table: another term is another entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from models.config.blocks import TrainConfig
from models.kinds.neus.outputs import Comparison
from models.kinds.protocol import Term
from models.kinds.terms import COUNT_EPS, color_term, eikonal_term, mask_term
from models.ops.loss_sums import loss_sums

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


PUBLISHED: Mapping[str, TermOf] = {"color": _color, "eikonal": _eikonal, "mask": _mask}
TERMS: dict[str, TermOf] = dict(PUBLISHED)


def terms_of(table: Mapping[str, TermOf], seen: Comparison, conf: TrainConfig) -> dict[str, Term]:
    """What a table of terms gives. The published ones are one operation where the device has one for them."""
    has_published = all(table.get(name) is term for name, term in PUBLISHED.items())
    joint = _joint(seen, conf) if loss_sums.is_native and has_published else {}
    return {name: joint[name] if name in joint else term(seen, conf) for name, term in table.items()}


def _joint(seen: Comparison, conf: TrainConfig) -> dict[str, Term]:
    """The published terms from sums that are taken together."""
    render = seen.render
    sums = loss_sums(render.rgb, render.opacity, render.sdf_gradient, seen.target, seen.mask, render.near_sphere)
    return {
        "color": Term(sums.color, sums.in_mask, margin=COUNT_EPS),
        "eikonal": Term(sums.eikonal, sums.near, conf.igr_weight, COUNT_EPS),
        "mask": Term(sums.mask, float(len(seen.mask)), conf.mask_weight),
    }
