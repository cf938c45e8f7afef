"""The gradient of a step, in one piece or as a sum over chunks of rays of which only one lives at a time.

R rays in the batch, r in a chunk. The normalisers of the losses span the batch: the rays and the masked rays are known
beforehand, the sections near the sphere (of NeuS) once all depths are placed, which needs no gradient. With them given,
the losses of the chunks add up to the loss of the batch, and so do the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from data.rays import PixelBatch
from models.backend import jt
from models.config import TrainConfig
from models.rendering import losses
from models.rendering.protocol import Placement, Renderer
from models.structs import Noise, Output, Terms, Var


@dataclass(frozen=True)
class BatchGradient:
    """What one batch gives: its losses, what they were computed from, and d total / d parameter."""

    terms: Terms
    render: Output
    target: Var  # [R, 3]
    mask: Var  # [R, 1]
    gradients: list[Var]  # in the order of the parameters


@dataclass(frozen=True)
class RenderSettings:
    """What a rendering depends on besides weights, rays and jitter."""

    cos_anneal_ratio: float
    background_rgb: np.ndarray | None  # [3], None for black


def differentiate(
    renderer: Renderer,
    batch: PixelBatch,
    noise: Noise | None,
    settings: RenderSettings,
    conf: TrainConfig,
    parameters: Sequence[Var],
    chunk: int,
) -> BatchGradient:
    """Losses and gradients of a batch, `chunk` rays at a time; the chunk changes memory, and roundings only.

    The computation of the gradients has been started on return; on the CPU it is finished.
    """
    if chunk >= len(batch.rays):
        return _in_one(renderer, batch, noise, settings, conf, parameters)
    placements, counts = place_batch(renderer, batch, noise, conf, chunk)
    pieces, sums = [], None
    for start, placement in zip(range(0, len(batch.rays), chunk), placements, strict=True):
        rows = slice(start, start + chunk)
        piece, target, mask = _piece(renderer, batch, noise, settings, conf, rows, placement)
        terms = renderer.loss(piece, target, mask, conf, counts)
        found = [value.detach() for value in jt.grad(terms.total, list(parameters))]
        added = found if sums is None else [total + value for total, value in zip(sums, found, strict=True)]
        sums = [total.stop_grad() for total in added]
        terms, piece = _cut(terms), _cut(piece)
        # Here the chunk is computed; after it nothing refers to its activations any more.
        jt.sync([*sums, *_values(terms), *_values(piece)])
        pieces.append((terms, piece, target, mask))
    terms, renders, targets, masks = zip(*pieces, strict=True)
    return BatchGradient(_add(terms), _join(renders), jt.concat(targets, 0), jt.concat(masks, 0), sums)


def place_batch(
    renderer: Renderer, batch: PixelBatch, noise: Noise | None, conf: TrainConfig, chunk: int
) -> tuple[list[Placement], losses.BatchCounts]:
    """What is settled of each chunk of a batch before it is differentiated, and the normalisers of the batch."""
    parts = [slice(start, start + chunk) for start in range(0, len(batch.rays), chunk)]
    placements = [renderer.place(batch.rays.slice(rows.start, rows.stop), _noise_rows(noise, rows)) for rows in parts]
    mask = losses.binary_mask(None if batch.mask is None else jt.array(batch.mask), len(batch.rays), conf)
    near = sum(placement.near for placement in placements)
    return placements, losses.BatchCounts(rays=len(batch.rays), masked=float(mask.sum().item()), near=near)


def _in_one(
    renderer: Renderer,
    batch: PixelBatch,
    noise: Noise | None,
    settings: RenderSettings,
    conf: TrainConfig,
    parameters: Sequence[Var],
) -> BatchGradient:
    """The whole batch as one graph."""
    target, mask = _photograph(batch, conf, slice(0, len(batch.rays)))
    render = renderer.render(batch.rays, noise, settings.cos_anneal_ratio, settings.background_rgb)
    terms = renderer.loss(render, target, mask, conf)
    gradients = jt.grad(terms.total, list(parameters))
    # What is handed on must not keep the graph: its activations would stay beside those of the next step. A failed
    # allocation is met here, before any weight has changed.
    terms, render = _cut(terms), _cut(render)
    jt.sync([*gradients, *_values(terms), *_values(render)])
    return BatchGradient(terms, render, target, mask, gradients)


def _piece(
    renderer: Renderer,
    batch: PixelBatch,
    noise: Noise | None,
    settings: RenderSettings,
    conf: TrainConfig,
    rows: slice,
    placement: Placement,
) -> tuple[Output, Var, Var]:
    """Rendering, photograph and mask of some rays of a batch."""
    target, mask = _photograph(batch, conf, rows)
    depths = None if placement.depths is None else jt.array(placement.depths)
    render = renderer.render(
        batch.rays.slice(rows.start, rows.stop),
        _noise_rows(noise, rows),
        settings.cos_anneal_ratio,
        settings.background_rgb,
        depths,
    )
    return render, target, mask


def _photograph(batch: PixelBatch, conf: TrainConfig, rows: slice) -> tuple[Var, Var]:
    """Colours [r, 3] and 0/1 mask [r, 1] of some rays."""
    rgb = batch.rgb[rows]
    mask = None if batch.mask is None else jt.array(batch.mask[rows])
    return jt.array(rgb), losses.binary_mask(mask, len(rgb), conf)


def _noise_rows(noise: Noise | None, rows: slice) -> Noise | None:
    """The jitter of some rays."""
    return None if noise is None else replace(noise, **{name: array[rows] for name, array in vars(noise).items()})


def _values(part: Terms | Output) -> list[Var]:
    """The fields in order."""
    return [getattr(part, field.name) for field in fields(part)]


def _cut(part: Terms | Output) -> Terms | Output:
    """The same values, off the graph that they came from."""
    return replace(part, **{field.name: getattr(part, field.name).detach().stop_grad() for field in fields(part)})


def _add(terms: Sequence[Terms]) -> Terms:
    """Sums of each term over the chunks."""
    return type(terms[0])(*(sum(values[1:], start=values[0]) for values in zip(*map(_values, terms), strict=True)))


def _join(renders: Sequence[Output]) -> Output:
    """The chunks one below the other; what has no row per ray is the same in each."""
    names = [field.name for field in fields(renders[0]) if field.metadata.get("rows", True)]
    joined = {name: jt.concat([getattr(render, name) for render in renders], dim=0) for name in names}
    return replace(renders[0], **joined)
