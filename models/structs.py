"""Values that pass between estimators, fields, rendering and training. P points, R rays, S samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from jittor import Var
else:
    Var = object


OF_THE_BATCH = {"rows": False}  # metadata of an output that has no row per ray: it is the same for all chunks
MASK_THRESHOLD = 0.5  # a pixel whose mask is above it shows the object


@dataclass(frozen=True)
class StepContext:
    """The step at which something is computed, and its background."""

    step: int  # finished optimiser steps
    background_rgb: np.ndarray | None  # [3], behind everything; None for black


@dataclass(frozen=True)
class RayLayout:
    """Which of S samples belong to which of R rays: ray by ray, and along each ray from the camera outwards.

    The samples of ray r are rows offsets[r] to offsets[r + 1]. Rows from offsets[R] on belong to no ray.
    """

    offsets: Var  # int32 [R + 1]
    per_ray: int = 0  # N of dense samples, of which every ray has as many; 0 for packed samples

    @property
    def has_any(self) -> Var | float:
        """Whether each ray has samples (0 or 1), [R, 1]; 1 of dense samples."""
        return 1.0 if self.per_ray else (self.offsets[1:] > self.offsets[:-1]).float32().unsqueeze(1)


@dataclass(frozen=True)
class RaySamples:
    """Intervals along rays, dense or packed, and the points in their middles at which fields are evaluated."""

    positions: Var  # [S, 3], middles of the intervals, working frame
    directions: Var  # [S, 3], unit, of the rays
    deltas: Var  # [S, 1], lengths of the intervals
    rays: RayLayout
    distances: Var | np.ndarray | None = None  # [S, 1], of the middles along the rays; None where nobody asks
    in_sphere: Var | None = None  # [S, 1], 1 in the unit sphere, else 0; None: all are
    near_sphere: Var | None = None  # [S, 1], 1 where the eikonal loss counts; None: everywhere
    background: BackgroundSamples | None = None


class BackgroundSamples(Protocol):
    """What lies behind or before the region of interest, on the same rays."""

    def joined(self, alpha: Var, rgb: Var, samples: RaySamples) -> tuple[Var, Var, RayLayout]:
        """Opacity [S, 1] and colour [S, 3] of the region's samples together with those of the background."""

    def of_region(self, weights: Var) -> Var:
        """Of the weights of all samples those of the region's [S, 1]; 0 where the background took their place."""


@dataclass(frozen=True)
class FieldOutput:
    """The signed-distance field at P points."""

    sdf: Var  # [P, 1], working-frame units, negative inside the object
    feature: Var  # [P, F], what the colour network reads
    gradient: Var  # [P, 3], d sdf / d point; not normalised


@dataclass(frozen=True)
class RadianceOutput:
    """A radiance field at P points."""

    density: Var  # [P, 1], per working-frame unit
    rgb: Var  # [P, 3] in [0, 1]


@dataclass(frozen=True)
class RenderOutput:
    """R rays rendered from S samples of the region and, with a background, T - S others. Differentiable."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1], sum of the weights of all samples
    weights: Var  # [T, 1], of all samples
    samples: RaySamples  # those of the region
    rays: RayLayout  # of `weights`
    geometry: FieldOutput | None = None  # at the samples; None for a radiance field
    inv_s: Var | None = None  # [1], 1/s of the paper; None for a radiance field
    coarse: RenderOutput | None = None  # the coarse pass of a NeRF

    @property
    def region_weights(self) -> Var:
        """The weights of the samples of the region [S, 1]."""
        background = self.samples.background
        return self.weights if background is None else background.of_region(self.weights)


@dataclass(frozen=True)
class Term:
    """A term of a loss: weight * total / (count + margin). Over the parts of a batch totals and counts add up."""

    total: Var  # [1], differentiable
    count: Var | float  # not differentiated
    weight: float = 1.0  # in the training loss
    margin: float = 0.0  # keeps a mean over nothing finite

    def mean(self, count: float | None = None) -> Var:
        """The term without its weight, [1]; `count` is that of the whole batch, where this is a part of it."""
        return self.total / ((self.count if count is None else count) + self.margin)


@dataclass(frozen=True)
class Objective:
    """The training loss of a batch, or of a part of it."""

    terms: dict[str, Term]  # by the names they are reported under
    output: Any  # a dataclass of Vars, nested or not: what scalars are computed from
    # What `after_step` needs the gradient of besides the parameters, by names that no other part of the batch has.
    watched: dict[str, Var] = field(default_factory=dict)


@dataclass(frozen=True)
class RayView:
    """What rays show, as pictures are made of it: float32 arrays."""

    rgb: np.ndarray  # [R, 3] in [0, 1]
    normal: np.ndarray  # [R, 3], working frame, outwards; length up to about opacity
    distance: np.ndarray  # [R, 1], working-frame units along the unit ray; 0 where the object is not seen
    opacity: np.ndarray  # [R, 1] in [0, 1]
