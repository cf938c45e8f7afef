"""Importance sampling of NeuS: uniform depths, then rounds of new ones near the surface. Not differentiable.

R rays, N initial depths (NeuS, arXiv 2106.10689, section 3.3). A round evaluates the signed distances that are not
known yet, and samples new depths from the weights of a density with its sharpness (`upsample`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from models.machine.backend import jt
from models.ops.kernel import Kernel
from models.ops.network import Weights, shapes32
from models.ops.sdf_mlp import SOURCE as SDF_SOURCE
from models.ops.sdf_mlp import sdf_distance
from models.ops.sizes import SdfSizes
from models.ops.source import Source
from models.ops.upsample import UpsampleRound, upsample
from models.ops.volrend import points_along
from models.structs import Var


@dataclass(frozen=True)
class Placing:
    """The layout; `round` is the first round, each later one doubles the sharpness."""

    network: SdfSizes
    round: UpsampleRound
    counts: tuple[int, ...]  # new depths of each round
    known: int  # 1 if the distances at the first depths are given


@dataclass(frozen=True)
class NetworkDistance:
    """Signed distances [P, 3] -> [P, 1] of a network that the native form can evaluate itself."""

    weights: Weights
    sizes: SdfSizes

    def __call__(self, points: Var) -> Var:
        """Signed distances [P, 1] at points [P, 3]."""
        return sdf_distance(points, self.weights, self.sizes)


SOURCE = Source("placing.h", (SdfSizes, UpsampleRound, Placing), SDF_SOURCE.constants)
Distance = Callable[[Var], Var]  # [P, 3] -> [P, 1]


def rounds(
    origins: Var,
    directions: Var,
    depths: Var,
    sdf: Var | None,
    distance: Distance,
    counts: Sequence[int],
    first_inv_s: float,
) -> list[Var]:
    """The new depths of each round [R, K], then all depths ascending [R, N + all K].

    Args:
        origins, directions: [R, 3].
        depths: [R, N] ascending.
        sdf: signed distances there, [R, N]; None to compute them.
        counts: K of each round; rounds with K = 0 are omitted.
        first_inv_s: sharpness of the first round; each further one doubles it.
    """
    added: list[Var] = []
    unknown = depths if sdf is None else None  # points with unknown distances
    order: Var | None = None  # the order that sorts old and new depths
    for index, count in enumerate(counts):
        if count == 0:
            continue
        if unknown is not None:
            points = points_along(origins, directions, unknown).reshape((-1, 3))
            found = distance(points).reshape(unknown.shape)
            sdf = jt.concat([sdf, found], dim=1).gather(1, order) if order is not None else found
        unknown, depths, order = upsample(origins, directions, depths, sdf, first_inv_s * 2**index, count)
        added.append(unknown)
    return [*added, depths]


def _reference(origins: Var, directions: Var, depths: Var, sdf: Var | None, distance: Distance, *plan: Any) -> Var:
    """All depths ascending; the arguments are those of `rounds`."""
    return rounds(origins, directions, depths, sdf, distance, *plan)[-1]


def _native(
    origins: Var,
    directions: Var,
    depths: Var,
    sdf: Var | None,
    distance: Distance,
    counts: Sequence[int],
    first_inv_s: float,
) -> Var:
    """One operation if the distance is that of a network."""
    if not isinstance(distance, NetworkDistance) or not any(counts):
        return _reference(origins, directions, depths, sdf, distance, counts, first_inv_s)
    rows, before = depths.shape
    layout = Placing(distance.sizes, UpsampleRound(before, 0, first_inv_s), tuple(counts), int(sdf is not None))
    inputs = [origins, directions, depths, depths if sdf is None else sdf, distance.weights.packed]
    return SOURCE.call("place", layout, shapes32((rows, before + sum(counts))), inputs)[0]


# On the CPU a round and the distances are separate operations, and fusing them gains nothing.
place = Kernel(_reference, cuda=_native)
