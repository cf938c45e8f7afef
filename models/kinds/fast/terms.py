"""The terms of the losses on packed samples that no other kind has."""

from __future__ import annotations

from models.kinds.protocol import Term
from models.kinds.terms import COUNT_EPS
from models.machine.backend import jt
from models.ops.elementwise import magnitude
from models.structs import Var


def free_term(sdf: Var, is_free: Var, weight: float) -> Term:
    """How deep samples that a mask proves free lie inside the object, on average; sdf and is_free (0 or 1) [S, 1].

    The mask loss says the same of a whole ray, but no longer has a gradient once the ray is opaque.
    """
    return Term((jt.maximum(-sdf, 0.0) * is_free).sum(), is_free.sum(), weight, COUNT_EPS)


def anchor_term(sdf: Var, is_anchor: Var, weight: float) -> Term:
    """How far the surface is from points of it, on average (Geo-NeuS, arXiv 2205.15848, eq. 8); as `free_term`."""
    return Term((magnitude(sdf) * is_anchor).sum(), is_anchor.sum(), weight, COUNT_EPS)


def curvature_term(curvature: Var, weight: float) -> Term:
    """Mean size of the curvature [S, 1] (Neuralangelo, arXiv 2306.03092, eq. 7)."""
    return Term(magnitude(curvature).sum(), float(curvature.shape[0]), weight)


def patch_term(costs: Var, is_compared: Var, weight: float) -> Term:
    """Mean of the costs of patches (Geo-NeuS, arXiv 2205.15848, eq. 12); costs, 0 of others, and is_compared [R, 1]."""
    return Term(costs.sum(), is_compared.sum(), weight, COUNT_EPS)
