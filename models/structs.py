"""What fields and renderers hand on. P points, R rays, N sections inside the sphere, M = N + sections outside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jittor import Var
else:
    Var = object


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
    inv_s: Var  # [1], sharpness of the density: 1/s of the paper


@dataclass(frozen=True)
class LossTerms:
    """The terms of the training loss, each a scalar Var of shape [1]."""

    total: Var
    color: Var
    eikonal: Var
    mask: Var
