"""What fields and kinds of model hand on. P points, R rays."""

from __future__ import annotations

from dataclasses import dataclass
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
class RayView:
    """What rays show, as pictures are made of it: float32 arrays."""

    rgb: np.ndarray  # [R, 3] in [0, 1]
    normal: np.ndarray  # [R, 3], working frame, outwards; length up to about opacity
    distance: np.ndarray  # [R, 1], working-frame units along the unit ray; 0 where the object is not seen
    opacity: np.ndarray  # [R, 1] in [0, 1]
