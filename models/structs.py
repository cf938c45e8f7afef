"""What fields and renderers hand on. P points, R rays, N sections inside the sphere, M = N + sections outside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jittor import Var
else:
    Var = object


OF_THE_BATCH = {"rows": False}  # metadata of an output that has no row per ray: it is the same for all chunks


@dataclass(frozen=True)
class FieldOutput:
    """The signed-distance field at P points."""

    sdf: Var  # [P, 1], working-frame units, negative inside the object
    feature: Var  # [P, F], what the colour network reads
    gradient: Var  # [P, 3], d sdf / d point; not normalised


@dataclass(frozen=True)
class SampleNoise:
    """The random numbers of one rendering, uniform in [0, 1): drawn by the trainer, so that a resume repeats them."""

    inside: np.ndarray  # [R, 1]: shifts all depths of a ray together
    outside: np.ndarray  # [R, n_outside]: places each depth beyond the sphere within its stratum


@dataclass(frozen=True)
class StratifiedNoise:
    """The same for a radiance field."""

    coarse: np.ndarray  # [R, n_samples]: places each depth within its stratum
    fine: np.ndarray  # [R, n_importance]: places each quantile within its stratum


Noise = SampleNoise | StratifiedNoise


def noise_from(arrays: Mapping[str, np.ndarray]) -> Noise | None:
    """The noise that has exactly these fields; None without any. Raises ValueError for the fields of neither."""
    if not arrays:
        return None
    for kind in (SampleNoise, StratifiedNoise):
        if {entry.name for entry in fields(kind)} == set(arrays):
            return kind(**arrays)
    raise ValueError(f"no jitter consists of {', '.join(sorted(arrays))}")


@dataclass(frozen=True)
class RenderOutput:
    """What one batch of rays shows. All fields are differentiable but `depths` and `inside_sphere`."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1], sum of the weights
    weights: Var  # [R, M], of each section, front to back
    depths: Var  # [R, N], section starts along the unit direction
    midpoints: Var  # [R, N], section middles along the unit direction
    sdf_gradient: Var  # [R, N, 3], at the section middles
    cdf: Var  # [R, N], Phi_s(sdf) at the section starts
    inside_sphere: Var  # [R, N], 1 where the section's middle lies in the unit sphere
    near_sphere: Var  # [R, N], 1 where it lies within the slightly larger sphere of the eikonal loss
    inv_s: Var = field(metadata=OF_THE_BATCH)  # [1], sharpness of the density: 1/s of the paper


@dataclass(frozen=True)
class RadianceOutput:
    """What one batch of rays shows of a radiance field: the fine pass, and what the coarse one is trained by.

    All fields are differentiable but `depths`.
    """

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1], sum of the weights
    weights: Var  # [R, M], of each section of the fine pass, front to back; M = n_samples + n_importance
    depths: Var  # [R, M], section starts along the unit direction
    coarse_rgb: Var  # [R, 3]
    coarse_opacity: Var  # [R, 1]


Output = RenderOutput | RadianceOutput


@dataclass(frozen=True)
class RayView:
    """What rays show, as pictures are made of it: float32 arrays."""

    rgb: np.ndarray  # [R, 3] in [0, 1]
    normal: np.ndarray  # [R, 3], working frame, outwards; length up to about opacity
    distance: np.ndarray  # [R, 1], working-frame units along the unit ray; 0 where the object is not seen
    opacity: np.ndarray  # [R, 1] in [0, 1]


@dataclass(frozen=True)
class LossTerms:
    """The terms of the training loss, each a scalar Var of shape [1]."""

    total: Var
    color: Var
    eikonal: Var
    mask: Var


@dataclass(frozen=True)
class RadianceTerms:
    """The terms of a radiance field's training loss, each a scalar Var of shape [1]."""

    total: Var
    fine: Var
    coarse: Var
    mask: Var


Terms = LossTerms | RadianceTerms
