"""Values that pass between estimators, fields, rendering and training. P points, R rays, S samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from data.rays import Rays

if TYPE_CHECKING:
    from jittor import Var
else:
    Var = object


Array: TypeAlias = "np.ndarray | Var"
Noise = Mapping[str, np.ndarray]  # the jitter of a batch by name, each with a row per entry of the batch
OF_THE_BATCH = {"inv_s"}  # names of outputs without a row per ray, which are equal for all chunks
MASK_THRESHOLD = 0.5  # mask value above which a pixel shows the object
TAGS = {"color_mse": "color", "coarse_mse": "coarse"}  # names of losses in TensorBoard tags, if they differ


@dataclass(frozen=True, match_args=False)  # frozen: its members may be read-only
class RayBatch(Protocol):
    """The pixels of R rays."""

    rays: Rays
    rgb: Array  # [R, 3] in [0, 1]
    mask: Array | None  # [R, 1] in [0, 1]; None for a scene without masks
    view: Array  # [R], index of the image

    def __len__(self) -> int:
        """The number of rays R."""


@dataclass(frozen=True)
class SampleRequest:
    """R rays, and what an estimator may use to choose their samples."""

    rays: Rays
    batch: RayBatch | None = None  # the batch of these rays; None for those of an image
    noise: Noise | None = None  # of the estimator's `draw_noise`; None for samples without jitter
    distance: Callable[[Var], Var] | None = None  # points [P, 3] -> signed distances [P, 1], not differentiated
    coarse: Callable[[RaySamples], RenderOutput] | None = None  # renders samples with the coarse radiance field
    precomputed: Var | None = None  # of the estimator's `precompute`; None to compute it now


@dataclass(frozen=True)
class RaySamples:
    """Intervals along R rays, dense or packed, with the positions at which fields are evaluated.

    The samples of ray r are rows offsets[r] to offsets[r + 1]. Rows from offsets[R] on belong to no ray.
    """

    positions: Var  # [S, 3], midpoints of the intervals, of NeRF their starts; working frame
    directions: Var  # [S, 3], unit, of the rays
    deltas: Var  # [S, 1], lengths of the intervals
    offsets: Var  # int32 [R + 1]
    distances: Var  # [S, 1], distances of the positions along the rays
    per_ray: int = 0  # number per ray of dense samples; 0 for packed samples
    in_sphere: Var | None = None  # [S, 1], 1 in the unit sphere, else 0; None if all are inside
    near_sphere: Var | None = None  # [S, 1], 1 if the eikonal loss applies; None if it applies to all
    background: BackgroundSamples | None = None
    coarse: RenderOutput | None = None  # the coarse pass by which they were chosen (NeRF)


class BackgroundSamples(Protocol):
    """Samples of the background, in front of and behind the region of interest on the same rays."""

    def joined(self, alpha: Var, rgb: Var) -> tuple[Var, Var, Var]:
        """Opacity [S, 1] and colour [S, 3] of the region's samples, combined with those of the background; offsets."""

    def of_region(self, weights: Var) -> Var:
        """The weights of the region's samples [S, 1] among those of all samples; 0 where the background replaces
        them.
        """


@dataclass(frozen=True)
class FieldOutput:
    """A signed-distance field at P points."""

    sdf: Var  # [P, 1], working-frame units, negative inside the object
    feature: Var  # [P, F], input of the colour network
    gradient: Var  # [P, 3], d sdf / d point; not normalised


@dataclass(frozen=True)
class RadianceOutput:
    """A radiance field at P points."""

    density: Var  # [P, 1], per working-frame unit
    rgb: Var  # [P, 3] in [0, 1]


@dataclass(frozen=True)
class RenderOutput:
    """R rays rendered from S samples of the region and, with a background, T - S further ones. Differentiable."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1], sum of the weights
    weights: Var  # [T, 1], of all samples
    samples: RaySamples  # samples of the region
    offsets: Var  # int32 [R + 1], of `weights`

    @cached_property
    def has_any(self) -> Var | float:
        """Whether each ray has samples (0 or 1), [R, 1]; 1 of dense samples."""
        return 1.0 if self.samples.per_ray else (self.offsets[1:] > self.offsets[:-1]).float32().unsqueeze(1)

    @property
    def region_weights(self) -> Var:
        """The weights of the samples of the region [S, 1]."""
        background = self.samples.background
        return self.weights if background is None else background.of_region(self.weights)


@dataclass(frozen=True)
class SurfaceOutput(RenderOutput):
    """The same of a signed distance."""

    geometry: FieldOutput  # at the samples
    inv_s: Var  # [1], 1/s of the paper


@dataclass(frozen=True)
class Term:
    """A term of a loss: weight * total / (count + margin). Totals and counts are additive over the parts of a batch."""

    total: Var  # [1], differentiable
    count: Var | float  # not differentiated
    weight: float = 1.0  # in the training loss
    margin: float = 0.0  # keeps the mean finite if the count is 0

    def mean(self, count: float | None = None) -> Var:
        """The unweighted term, [1]; `count` is that of the whole batch if this is a part of it."""
        return self.total / ((self.count if count is None else count) + self.margin)


def loss_tag(name: str) -> str:
    """The TensorBoard tag of a term; that of the weighted sum is `Loss/loss`."""
    return f"Loss/{TAGS.get(name, name)}_loss"


def loss_scalars(losses: Mapping[str, Var]) -> dict[str, Var]:
    """The losses of a step, and their sum `total`, by TensorBoard tag."""
    return {"Loss/loss" if name == "total" else loss_tag(name): value for name, value in losses.items()}


@dataclass(frozen=True)
class Objective:
    """The training loss of a batch, or of a part of it."""

    terms: dict[str, Term]  # by the names under which they are logged
    output: dict[str, Var]  # values by name, from which scalars are computed


@dataclass(frozen=True)
class RayView:
    """Values of rays for images: float32 arrays."""

    rgb: np.ndarray  # [R, 3] in [0, 1]
    normal: np.ndarray  # [R, 3], working frame, outwards; length up to about opacity
    distance: np.ndarray  # [R, 1], working-frame units along the unit ray; 0 where the object is not seen
    opacity: np.ndarray  # [R, 1] in [0, 1]
