"""Where the sections of rays begin: even depths, then rounds of new ones nearer the surface. Nothing is differentiated.

R rays, N depths at first (NeuS, arXiv 2106.10689, section 3.3). A round asks for the signed distance where it is not
known yet, and places new depths where a density of its sharpness has its weight (`upsample`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """The layout; `round` is the first, each later one assumes twice the sharpness."""

    network: SdfSizes
    round: UpsampleRound
    counts: tuple[int, ...]  # new depths of each round
    known: int  # 1 where the distances at the first depths are given


@dataclass(frozen=True)
class NetworkDistance:
    """Signed distances [P, 3] -> [P, 1] of a network, which a whole placing can ask for by itself."""

    weights: Weights
    sizes: SdfSizes

    def __call__(self, points: Var) -> Var:
        """At points."""
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
        sdf: signed distances there, [R, N]; None where they are still to be asked for.
        counts: K of each round; one that places nothing is left out.
        first_inv_s: sharpness that the first round assumes; each further one doubles it.
    """
    added: list[Var] = []
    unknown = depths if sdf is None else None  # where the distances are still to be asked for
    order: Var | None = None  # that of the depths, new ones last, in which they ascend
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


def _reference(origins: Var, directions: Var, depths: Var, sdf: Var | None, distance: Distance, *plan: object) -> Var:
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
    """One operation where the distance is a network's."""
    if not isinstance(distance, NetworkDistance) or not any(counts):
        return _reference(origins, directions, depths, sdf, distance, counts, first_inv_s)
    rows, before = depths.shape
    layout = Placing(distance.sizes, UpsampleRound(before, 0, first_inv_s), tuple(counts), int(sdf is not None))
    inputs = [origins, directions, depths, depths if sdf is None else sdf, distance.weights.packed]
    return SOURCE.call("place", layout, shapes32((rows, before + sum(counts))), inputs)[0]


# On the CPU a round is an operation, and so is asking for distances: there is nothing to be won.
place = Kernel(_reference, cuda=_native)
