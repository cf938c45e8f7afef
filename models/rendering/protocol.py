"""What rendering and losses take from a method and from a batch of R rays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from models.config.blocks import TrainConfig
from models.fields.photographs import Exposure
from models.fields.protocol import RadianceFields, SurfaceFields
from models.plan import Decision
from models.rendering.patches import PatchComparison
from models.structs import Array, RenderOutput, Var

Output = TypeVar("Output", bound=RenderOutput)


@dataclass(frozen=True, match_args=False)  # frozen: its members may be read-only
class RayBatch(Protocol):
    """The pixels of R rays."""

    rgb: Array  # [R, 3] in [0, 1]
    mask: Array | None  # [R, 1] in [0, 1]; None for a scene without masks
    view: Array  # [R], index of the image

    def __len__(self) -> int:
        """The number of rays R."""


@dataclass(frozen=True, match_args=False)
class PackedRays(RayBatch, Protocol):
    """The same with packed samples; see `models.estimators.sampler.PackedBatch`."""

    step: float  # length of each interval
    anchors: int | None  # number of SfM points among the samples
    every: int | None  # patches are compared for one ray in so many

    def of_rays(self, is_such: Array) -> Var:
        """Whether each sample is on one of the given rays, bool [R]: float32 [S, 1]."""

    def is_anchor(self) -> Var:
        """Whether each sample is an SfM point, float32 [S, 1]."""


class Method(Protocol):
    """A method that renders rays: a `models.methods.volume.VolumeModel`."""

    weights: Mapping[str, Decision]  # of the losses that the plan uses, by name
    estimator: Any
    train: TrainConfig
    exposure: Exposure | None

    @property
    def behind(self) -> np.ndarray | None:
        """The colour [3] behind everything; None for black."""

    def targets(self, batch: Any) -> tuple[Var, Var, Var | None]:
        """Target colours [R, 3], which rays count (0 or 1), and target opacity [R, 1]."""

    def exposed(self, rendering: Output, batch: RayBatch) -> Output:
        """Colours with the exposure of their images."""

    def scalar_inputs(self, rendered: Any) -> dict[str, Var]:
        """What the scalars of a step need of a `Rendered`, by name."""


class SurfaceMethod(Method, Protocol):
    """A method with a signed distance."""

    fields: SurfaceFields

    def cos_anneal_ratio(self, step: int) -> float:
        """See `ops.volrend.annealed_cos`."""


class PackedMethod(SurfaceMethod, Protocol):
    """The same with packed samples."""

    patches: PatchComparison | None  # None if patches are not compared

    def free_rays(self, batch: Any) -> Array | None:
        """Whether each ray passes beside the object, bool [R]; None if that is not known."""


class RadianceMethod(Method, Protocol):
    """A method with a density."""

    fields: RadianceFields
