"""What rendering and losses take from a method and from a batch of R rays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from models.fields.protocol import BoundDistance, RadianceFields, SurfaceFields
from models.structs import Array, RayBatch, RaySamples, RenderOutput, SampleRequest, SurfaceOutput, Term, Var

Output = TypeVar("Output", bound=RenderOutput)


@dataclass(frozen=True, match_args=False)
class PackedRays(RayBatch, Protocol):
    """The same with packed samples; see `models.estimators.packed.PackedBatch`."""

    step_size: float  # length of each interval
    anchors: int | None  # number of SfM points among the samples
    every: int | None  # patches are compared for one ray in so many

    def rays_of_samples(self) -> tuple[Var, Var]:
        """The ray of each sample, int32 [S], and the offsets, int32 [R + 1]."""

    def is_anchor(self) -> Var:
        """Whether each sample is an SfM point, float32 [S, 1]."""


class Exposure(Protocol):
    """A learned exposure of images; see `models.fields.color.Exposure`."""

    def changes(self) -> Var:
        """The differences from the identity."""


class Estimator(Protocol):
    """What chooses samples; see `models.estimators.base.Estimator`."""

    def sample(self, request: SampleRequest) -> RaySamples:
        """The samples of a batch."""


class Targets(NamedTuple):
    """What rays are compared with."""

    colors: Var  # [R, 3]
    counts: Var  # [R, 1], 1 if the colour of a ray counts, else 0
    mask: Var | None  # [R, 1], opacities; None if unknown


class VolumeMethod(Protocol):
    """A method that renders rays: a `models.methods.volume.VolumeModel`."""

    @property
    def estimator(self) -> Estimator:
        """Chooses the samples."""

    @property
    def exposure(self) -> Exposure | None:
        """The learned exposure of images."""

    seed: int  # of the random numbers of losses

    @property
    def behind(self) -> np.ndarray | None:
        """The colour [3] behind everything; None for black."""

    def targets(self, batch: Any) -> Targets:
        """What the rendering of a batch is compared with."""

    def exposed(self, rendering: Output, batch: RayBatch) -> Output:
        """Colours with the exposure of their images."""

    def terms(self, rendered: Any) -> dict[str, Term]:
        """The losses of a `Rendered` that have a weight at its step, by name."""

    def scalar_inputs(self, rendered: Any) -> dict[str, Var]:
        """What the scalars of a step need of a `Rendered`, by name."""


class SurfaceMethod(VolumeMethod, Protocol):
    """A method with a signed distance."""

    fields: SurfaceFields

    def cos_anneal_ratio(self, step: int) -> float:
        """See `ops.volrend.annealed_cos`."""


class PatchComparison(Protocol):
    """Images whose patches are compared; see `models.rendering.losses.PatchComparison`."""

    def costs(self, rendering: SurfaceOutput, view: Array, step_size: float, every: int) -> tuple[Var, Var]:
        """The cost of the patch at the surface of each ray, and whether there is one (0 or 1), [R, 1] each."""


class PackedMethod(SurfaceMethod, Protocol):
    """The same with packed samples."""

    patches: PatchComparison | None  # None if patches are not compared

    def free_rays(self, batch: Any) -> Array | None:
        """Whether each ray passes beside the object, bool [R]; None if that is not known."""


class RadianceMethod(VolumeMethod, Protocol):
    """A method with a density."""

    fields: RadianceFields


OfBatch = TypeVar("OfBatch", bound=RayBatch)
OfMethod = TypeVar("OfMethod", bound=VolumeMethod)


@dataclass(frozen=True)
class Rendered(Generic[Output, OfBatch, OfMethod]):
    """A batch, its rendering and its targets: the input of a loss."""

    rendering: Output
    batch: OfBatch
    target: Var  # [R, 3], colours
    counts: Var  # [R, 1], 1 if the colour of a ray counts, else 0
    mask: Var | None  # [R, 1], target opacity of a ray; None if unknown
    method: OfMethod
    step: int  # finished training steps
    sdf: BoundDistance | None = None  # of a surface, as it was rendered

    def generator(self) -> np.random.Generator:
        """Random numbers for a loss: the same for all chunks and processes of a step, and in a resumed training."""
        return np.random.default_rng((self.method.seed, self.step))


# What a loss needs: any method, one with a signed distance, or one with packed samples.
OfRays = Rendered[RenderOutput, RayBatch, VolumeMethod]
OfSurface = Rendered[SurfaceOutput, RayBatch, SurfaceMethod]
OfPacked = Rendered[SurfaceOutput, PackedRays, PackedMethod]
