"""A small example of each operation, to compare its native form with its reference on any device."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from models import ops
from models.machine.backend import jt
from models.ops.color_inputs import color_inputs
from models.ops.color_mlp import color
from models.ops.compact_examples import COMPACT_MAKERS, RAYS, packed_offsets
from models.ops.compact_examples import SAMPLES as POINTS
from models.ops.drawn_examples import DRAWN_MAKERS
from models.ops.example import Example, Maker
from models.ops.grid import grid_encode
from models.ops.grid_sdf import grid_sdf, grid_values, with_network
from models.ops.grid_sizes import FEATURES, grid_sizes
from models.ops.hits import Hits, surface_hits
from models.ops.intervals import intervals
from models.ops.kernel import Kernel
from models.ops.march import EMPTY, OCCUPIED, SOLID, march, with_empty_boxes
from models.ops.nerf_mlp import nerf
from models.ops.network import Weights
from models.ops.packed import packed_sum, packed_weights
from models.ops.packing import pack
from models.ops.patches_example import patches_example
from models.ops.placing import NetworkDistance, place
from models.ops.sdf_mlp import sdf_distance, sdf_field
from models.ops.section_alpha import section_alpha
from models.ops.sharpness import sharpness
from models.ops.sizes import ColorSizes, NerfSizes, SdfSizes, encoding_width
from models.ops.splat_examples import SPLAT_MAKERS
from models.ops.update import AdamStep, Update, adam, all_finite, readings
from models.ops.upsample import upsample
from models.ops.weighted_means import weighted_means
from models.structs import Var


def kernels() -> dict[str, Kernel]:
    """Every operation of this package by name."""
    modules = [importlib.import_module(f"{ops.__name__}.{entry.name}") for entry in pkgutil.iter_modules(ops.__path__)]
    return {
        name: value for module in modules for name, value in sorted(vars(module).items()) if isinstance(value, Kernel)
    }


def outputs(found: Any) -> list[Var]:
    """The Vars of a result, in order."""
    if is_dataclass(found):
        return [leaf for field in fields(found) for leaf in outputs(getattr(found, field.name))]
    if isinstance(found, list | tuple):
        return [leaf for value in found for leaf in outputs(value)]
    return [found]


def _sdf(rng: np.random.Generator) -> tuple[Var, Weights, SdfSizes]:
    """A network with a skip connection."""
    encoded = encoding_width(3, 2)
    widths = (encoded, 32 - encoded, 32, 24, 24, 9)
    weights = _weights(rng, widths)
    return _normal(rng, POINTS, 3, size=0.5), weights, SdfSizes(3, encoded, 2, 1 << 1, widths, 1.5)


def _distance(rng: np.random.Generator) -> Example:
    return Example(sdf_distance, _sdf(rng))


def _field(rng: np.random.Generator) -> Example:
    points, weights, sizes = _sdf(rng)
    return Example(sdf_field, (points, weights, sizes), _trained(weights))


def _color(rng: np.random.Generator) -> Example:
    widths = (6 + 3 + 8, 24, 24, 3)
    weights = _weights(rng, widths)
    fixed, normals, features = (_normal(rng, POINTS, width) for width in (6, 3, 8))
    sizes = ColorSizes(2, 1, 6, 1, 8, widths)
    return Example(color, (fixed, normals, features, weights, sizes), (normals, features, *_trained(weights)))


def _nerf(rng: np.random.Generator) -> Example:
    encoded, views = encoding_width(4, 2), encoding_width(3, 1)
    widths = (encoded, 24, 24, 24, 24 + encoded, 24, 24, 25, 24 + views, 12, 12, 3)
    weights = _weights(rng, widths)
    points, directions = _normal(rng, POINTS, 4, size=0.5), _directions(rng, POINTS)
    sizes, selected = NerfSizes(3, 4, 2, 1, (1,), widths), jt.array(rng.random(POINTS) < 0.5)
    return Example(nerf, (points, directions, weights, sizes, selected), _trained(weights))


def _upsample(rng: np.random.Generator) -> Example:
    origins, directions, depths = _normal(rng, RAYS, 3, size=0.1), _directions(rng, RAYS), _ascending(rng, RAYS, 16)
    distances = depths.numpy() - rng.uniform(0.4, 0.9, (RAYS, 1)).astype(np.float32)
    return Example(upsample, (origins, directions, depths, jt.array(-distances), 64.0, 8), compared=2)


def _grid(rng: np.random.Generator, outputs: int) -> tuple[Var, Var, Weights, Any]:
    """A grid with one dense level, two hashed ones and an inactive one, and a network."""
    sizes = with_network(grid_sizes(4, 4, 40, 10, active=3), [24], outputs)
    table = _normal(rng, sizes.rows, FEATURES, size=0.1)
    points = jt.array(rng.uniform(-1.1, 1.1, (POINTS, 3)).astype(np.float32))
    return points, table, _weights(rng, sizes.widths), sizes


def _encode(rng: np.random.Generator) -> Example:
    points, table, _, sizes = _grid(rng, 4)
    return Example(grid_encode, (points, table, sizes), (points, table))


def _grid_values(rng: np.random.Generator) -> Example:
    points, table, weights, sizes = _grid(rng, 4)
    return Example(grid_values, (points, table, weights, sizes), (table, *_trained(weights)))


def _grid_sdf(rng: np.random.Generator) -> Example:
    points, table, weights, sizes = _grid(rng, 9)
    return Example(grid_sdf, (points, table, weights, sizes), (table, *_trained(weights)))


def _alpha(rng: np.random.Generator) -> Example:
    sdf, cos = _normal(rng, POINTS, 1, size=0.05), _normal(rng, POINTS, 1)
    lengths = jt.array(rng.uniform(0.01, 0.1, (POINTS, 1)).astype(np.float32))
    sharpness = jt.array(np.array([40.0], np.float32))
    return Example(section_alpha, (sdf, cos, lengths, sharpness, 0.7), (sdf, cos, sharpness))


def _march(rng: np.random.Generator) -> Example:
    directions = _directions(rng, RAYS)
    cells = rng.choice(np.array([EMPTY, OCCUPIED, SOLID], np.uint8), (16, 16, 16), p=[0.6, 0.35, 0.05])
    cells[:8] = EMPTY
    near, far, jitter = (np.full((RAYS, 1), value, np.float32) for value in (1.0, 3.0, 0.5))
    where = [directions * -2.0, directions, *map(jt.array, (near, far, jitter, with_empty_boxes(cells)))]
    return Example(march, (*where, 0.05, RAYS * 40))


def _packed_weights(rng: np.random.Generator) -> Example:
    alpha = jt.array(rng.uniform(0.0, 0.5, (POINTS, 1)).astype(np.float32))
    return Example(packed_weights, (alpha, jt.array(packed_offsets(rng))), (alpha,))


def _packed_sum(rng: np.random.Generator) -> Example:
    weights, values = _normal(rng, POINTS, 1), _normal(rng, POINTS, 5)
    return Example(packed_sum, (weights, values, jt.array(packed_offsets(rng))), (weights, values))


def _surface_hits(rng: np.random.Generator) -> Example:
    """Rays that hit a surface, are transparent, or leave it behind."""
    sdf, gradient, directions = _normal(rng, POINTS, 1, size=0.05), _normal(rng, POINTS, 3), _directions(rng, POINTS)
    weights = jt.array(rng.uniform(0.0, 0.3, (POINTS, 1)).astype(np.float32))
    given = (weights, _normal(rng, POINTS, 3), directions, jt.array(packed_offsets(rng)))
    return Example(surface_hits, (sdf, gradient, *given, Hits(POINTS, 1, 0.5, 0.1, 0.1)), (sdf, gradient))


def _adam(rng: np.random.Generator) -> Example:
    shapes = ((7, 5), (300, 2), (1,))
    parameters, gradients, firsts = ([_normal(rng, *shape) for shape in shapes] for _ in range(3))
    seconds = [_normal(rng, *shape).sqr() for shape in shapes]
    before = Update(parameters, firsts, seconds, jt.array(np.array([True])))
    return Example(adam, (before, gradients, [1e-2, 2e-2, 3e-2], AdamStep.after(3)))


def _readings(rng: np.random.Generator) -> Example:
    loss, *values = (_normal(rng, *shape) for shape in ((1,), (30, 20), (5,), (30, 20), (5,)))
    return Example(readings, (loss, values[:2], values[2:]))


def _all_finite(rng: np.random.Generator) -> Example:
    return Example(all_finite, ([_normal(rng, 9), jt.array(np.array([np.inf], np.float32))],))


def _pack(rng: np.random.Generator) -> Example:
    normed, plain = [_normal(rng, 9, 5), _normal(rng, 9, 1), _normal(rng, 9)], [_normal(rng, 3, 300), _normal(rng, 3)]
    return Example(pack, ([tuple(normed), tuple(plain)],), (*normed, *plain))


def _intervals(rng: np.random.Generator) -> Example:
    origins, directions = _normal(rng, RAYS, 3, size=0.1), _directions(rng, RAYS)
    return Example(intervals, (origins, directions, _ascending(rng, RAYS, 12), 0.1))


def _color_inputs(rng: np.random.Generator) -> Example:
    return Example(color_inputs, (_normal(rng, POINTS, 3), _directions(rng, POINTS), 2))


def _place(rng: np.random.Generator) -> Example:
    """Two rounds, without given distances at the first depths."""
    origins, directions, depths = _normal(rng, RAYS, 3, size=0.1), _directions(rng, RAYS), _ascending(rng, RAYS, 16)
    _, weights, sizes = _sdf(rng)
    # A smaller sharpness than in training: 64 would amplify the rounding of a distance to 1e-3 of a depth.
    return Example(place, (origins, directions, depths, None, NetworkDistance(weights, sizes), [6, 0, 5], 1.0))


def _sharpness(rng: np.random.Generator) -> Example:
    variance = _normal(rng, 1, size=0.2)
    return Example(sharpness, (variance,), (variance,))


def _weighted_means(rng: np.random.Generator) -> Example:
    totals, counts = [[_normal(rng, 1).sqr() + 1.0 for _ in range(3)] for _ in range(2)]
    return Example(weighted_means, (totals, [counts[0], 7.0, counts[2]], [0.0, 0.1, 0.2], [1.0, 0.5, 2.0]), (*totals,))


def _weights(rng: np.random.Generator, widths: Sequence[int]) -> Weights:
    """Linear layers with these inputs and outputs."""
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return Weights([(_normal(rng, out, into, size=into**-0.5), _normal(rng, out, size=0.1)) for into, out in pairs])


def _trained(weights: Weights) -> tuple[Var, ...]:
    return tuple(part for layer in weights.layers for part in layer)


def _normal(rng: np.random.Generator, *shape: int, size: float = 1.0) -> Var:
    return jt.array(rng.normal(0.0, size, shape).astype(np.float32))


def _directions(rng: np.random.Generator, count: int) -> Var:
    found = rng.normal(size=(count, 3))
    return jt.array((found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32))


def _ascending(rng: np.random.Generator, rows: int, count: int) -> Var:
    return jt.array(np.sort(rng.uniform(0.1, 1.4, (rows, count)), axis=1).astype(np.float32))


MAKERS: dict[str, Maker] = {
    "pack": _pack,
    "intervals": _intervals,
    "color_inputs": _color_inputs,
    "place": _place,
    "sharpness": _sharpness,
    "weighted_means": _weighted_means,
    "sdf_distance": _distance,
    "sdf_field": _field,
    "color": _color,
    "nerf": _nerf,
    "upsample": _upsample,
    "grid_encode": _encode,
    "grid_values": _grid_values,
    "grid_sdf": _grid_sdf,
    "section_alpha": _alpha,
    "march": _march,
    "packed_weights": _packed_weights,
    "packed_sum": _packed_sum,
    "surface_hits": _surface_hits,
    "patch_costs": patches_example,
    "adam": _adam,
    "readings": _readings,
    "all_finite": _all_finite,
    **COMPACT_MAKERS,
    **DRAWN_MAKERS,
    **SPLAT_MAKERS,
}


def examples(seed: int = 0) -> Iterator[tuple[str, Example]]:
    """The examples by operation name."""
    for name, make in MAKERS.items():
        yield name, make(np.random.default_rng(seed))
