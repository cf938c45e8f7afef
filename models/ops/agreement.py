"""How well photographs agree around the vertices of a mesh that are moved along their normals.

N vertices, V photographs of any sizes. The patch of a vertex is the vertex itself and vertices around it, so that it
follows the surface; as a whole it is moved by -H, ..., H steps along the normal of the vertex, O = 2 H + 1. The grey
values of its vertices in two photographs, sampled bilinearly, have a normalised cross-correlation, in which a vertex
weighs exp(-d^2 / D^2): d is its distance from the own one, D^2 the mean of d^2. The score of an
offset is the mean over the pairs of those two thirds of the views (at least two) that agree best with the others at
their best offset: a view that is hidden, blurred or has a highlight does not count. The score is -1 unless two views,
and two thirds of those given, contain the patch at all offsets, and where one of them clips a share of it: views that
nearly do misplace it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var

MOST_VIEWS, MOST_PATCH, MOST_OFFSETS = 8, 40, 9
NOISE = 2.0  # grey levels squared: the variance of the noise of a photograph
CLIPPED = 250.0  # grey level from which a photograph shows how bright its sensor can see, and not what there is
SHARE = 0.1  # of a patch that may be clipped
LEAST_PATCH = 3  # vertices
TINY = 1e-30
HIDDEN = -2.0  # below every correlation


@dataclass(frozen=True)
class Agreement:
    """The sizes and constants that reference and native source share."""

    offsets: int  # O, odd, at most MOST_OFFSETS
    others: int  # K, views of a vertex, at most MOST_VIEWS
    patch: int  # M, vertices of a patch, at most MOST_PATCH
    noise: float = NOISE
    clipped: float = CLIPPED
    share: float = SHARE


SOURCE = Source.of(
    "agreement.h", Agreement, MOST_VIEWS=MOST_VIEWS, MOST_PATCH=MOST_PATCH, MOST_OFFSETS=MOST_OFFSETS, TINY=TINY
)


def _reference(
    points: Var,
    normals: Var,
    steps: Var,
    patches: Var,
    views: Var,
    cameras: Var,
    sizes: Var,
    images: Var,
    layout: Agreement,
) -> Var:
    """Scores [N, O], without gradients.

    Args:
        points, normals: [N, 3]; unit normals.
        steps: [N, 1], units of the frame.
        patches: int32 [N, M], indices of vertices, the own one first, then -1.
        views: int32 [N, K], -1 for none.
        cameras: [V, 12], the projection [3, 4] to homogeneous pixels.
        sizes: int32 [V, 3], width, height, and the index of the first pixel.
        images: uint8 [B], the grey values of all photographs.
    """
    belongs = (patches >= 0).float32()  # [N, M]
    places = points[jt.maximum(patches, 0)]  # [N, M, 3]
    weights = _weights(places, belongs).unsqueeze(1)  # [N, 1, M]
    moves = (jt.arange(layout.offsets) - layout.offsets // 2).float32() * steps  # [N, O]
    moved = places.unsqueeze(1) + moves.unsqueeze(2).unsqueeze(3) * normals.unsqueeze(1).unsqueeze(2)  # [N, O, M, 3]
    greys, shown, clipped = [], [], []
    for k in range(layout.others):
        view = jt.maximum(views[:, k], 0)
        grey, inside = _sampled(moved, cameras[view], sizes[view], images)
        is_whole = jt.logical_or(inside, (belongs < 0.5).unsqueeze(1).broadcast(inside.shape)).all(dim=2).all(dim=1)
        enough = belongs.sum(dim=1) >= LEAST_PATCH
        shown.append(jt.logical_and(jt.logical_and(views[:, k] >= 0, enough), is_whole).float32())
        bright = ((grey > layout.clipped).float32() * belongs.unsqueeze(1)).sum(dim=2).max(dim=1)
        clipped.append(bright * shown[-1] > layout.share * belongs.sum(dim=1))
        greys.append(_normalised(grey, weights, layout.noise))
    grey, shown = jt.stack(greys, dim=1), jt.stack(shown, dim=1)  # [N, K, O, M], [N, K]
    pairs = (grey.unsqueeze(2) * grey.unsqueeze(1)).sum(dim=4)  # [N, K, K, O]
    different = 1.0 - jt.init.eye(layout.others)
    both = shown.unsqueeze(2) * shown.unsqueeze(1) * different.unsqueeze(0)  # [N, K, K]
    count = shown.sum(dim=1, keepdims=True)
    best = ((pairs * both.unsqueeze(3)).sum(dim=2) / jt.maximum(count - 1, 1.0).unsqueeze(2)).max(dim=2)
    best = best * shown + HIDDEN * (1.0 - shown)
    ahead = jt.logical_or(
        best.unsqueeze(1) > best.unsqueeze(2),
        jt.logical_and(best.unsqueeze(1) == best.unsqueeze(2), _before(layout.others).broadcast(both.shape)),
    )
    most = jt.maximum(((2 * count + 2) / 3).floor(), 2.0)
    chosen = shown * (ahead.float32().sum(dim=2) < most).float32()
    both = chosen.unsqueeze(2) * chosen.unsqueeze(1) * different.unsqueeze(0)
    scores = (pairs * both.unsqueeze(3)).sum(dim=2).sum(dim=1) / jt.maximum(most * (most - 1), 1.0)
    enough = jt.logical_and(count >= 2, 3 * count >= 2 * (views >= 0).float32().sum(dim=1, keepdims=True))
    is_known = jt.logical_and(enough, jt.stack(clipped, dim=1).float32().sum(dim=1, keepdims=True) == 0)
    return jt.ternary(is_known.broadcast(scores.shape), scores, -jt.ones_like(scores)).stop_grad()


def _before(count: int) -> Var:
    """Whether view l is before view k: bool [1, K, K]."""
    index = jt.arange(count)
    return (index.unsqueeze(0) < index.unsqueeze(1)).unsqueeze(0)


def _sampled(places: Var, cameras: Var, sizes: Var, images: Var) -> tuple[Var, Var]:
    """Grey values [N, O, M] at places [N, O, M, 3], of a view per vertex, and whether each is in the photograph."""
    projection = cameras.reshape((-1, 1, 1, 3, 4))
    seen = (projection[..., :3] * places.unsqueeze(3)).sum(dim=4) + projection[..., 3]
    depth = seen[..., 2]
    x, y = (seen[..., axis] / jt.ternary(depth > 0, depth, jt.ones_like(depth)) for axis in (0, 1))
    width, height, start = (sizes[:, index].unsqueeze(1).unsqueeze(2) for index in range(3))
    inside = jt.logical_and(jt.logical_and(depth > 0, jt.logical_and(x >= 0, y >= 0)), x <= (width - 1).float32())
    inside = jt.logical_and(inside, y <= (height - 1).float32())
    x, y = (jt.ternary(inside, value, jt.zeros_like(value)) for value in (x, y))
    column, row = jt.minimum(x.floor().int32(), width - 2), jt.minimum(y.floor().int32(), height - 2)
    right, low = x - column, y - row
    corner = start + row * width + column
    above, below = (
        images[at].float32() * (1 - right) + images[at + 1].float32() * right for at in (corner, corner + width)
    )
    return above * (1 - low) + below * low, inside


def _weights(places: Var, belongs: Var) -> Var:
    """What the vertices [N, M] of patches at places [N, M, 3] weigh, by their distance; 0 where none `belongs`."""
    square = (places - places[:, :1]).sqr().sum(dim=2) * belongs
    mean = square.sum(dim=1, keepdims=True) / jt.maximum(belongs.sum(dim=1, keepdims=True), 1.0)
    return (-square / jt.maximum(mean, TINY)).exp() * belongs


def _normalised(grey: Var, weights: Var, noise: float) -> Var:
    """Grey values [N, O, M] less their mean, times the roots of weights [N, 1, M], of about length 1."""
    whole = jt.maximum(weights.sum(dim=2, keepdims=True), TINY)
    grey = (grey - (grey * weights).sum(dim=2, keepdims=True) / whole) * weights.sqrt()
    return grey / (grey.sqr().sum(dim=2, keepdims=True) + noise * whole).sqrt()


def _native(
    points: Var,
    normals: Var,
    steps: Var,
    patches: Var,
    views: Var,
    cameras: Var,
    sizes: Var,
    images: Var,
    layout: Agreement,
) -> Var:
    outputs = [(points.shape[0], layout.offsets)]
    inputs = [points, normals, steps, patches, views, cameras, sizes, images]
    return SOURCE.detached("agreement", layout, outputs, inputs)[0]


agreement = Kernel(_reference, cpu=_native, cuda=_native)
