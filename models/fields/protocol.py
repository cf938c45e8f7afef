"""The interfaces of fields; modules that implement them can replace the published networks.

A field is a `jt.nn.Module` with trained and saved parameters, or contains such modules. `bind` binds a distance
to its current parameters; it is called once per rendering, so that nothing is computed twice from the same weights. P
points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from models.structs import FieldOutput, RadianceOutput, Var

# The eikonal loss keeps the norm of the SDF gradient near 1; between two points it is assumed not to exceed this.
LARGEST_SLOPE = 1.5
# Points float32 [P, 3] and their distances [P, 1], others at each call.
Draw = Callable[[], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class BoundDistance:
    """A signed-distance field with its current parameters, as functions of points [P, 3]."""

    distance: Callable[[Var], Var]  # signed distances [P, 1], without gradients: to place samples
    evaluate: Callable[
        [Var], FieldOutput
    ]  # distance, gradient and feature, differentiable in the parameters: to render
    # Distances [P, 1], which further columns may follow, differentiable in the parameters but without the gradient of
    # the distance: for losses at further points.
    values: Callable[[Var], Var]


class Leveled(Protocol):
    """A field with levels, such as those of a grid, which a training activates one after the other."""

    active: int  # number of active levels

    @property
    def levels(self) -> int:
        """The number of levels; 0 for a field without."""

    def activate(self, first: int, progress: float) -> None:
        """Activate `first` levels at progress 0, and further ones at equal intervals, all at progress 1."""


class DistanceField(Leveled, Protocol):
    """A signed-distance field, negative inside the object."""

    def bind(self) -> BoundDistance:
        """The field bound to its current parameters."""

    def begin_with_sphere(self, radius: float, is_inverted: bool = False) -> None:
        """Reset the initial distances to those of a sphere of this radius; inverted: positive within it."""

    def begin_with(self, draw: Draw, levels: int) -> None:
        """Fit the initial distances, with the first `levels` active."""


class ColorField(Protocol):
    """The colour of a surface."""

    def __call__(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """RGB [P, 3] in [0, 1] (`execute` of a module); differentiable in the parameters, in normals and in features.

        Args:
            points: [P, 3].
            normals: [P, 3], the gradient of the distance, not normalised.
            view_dirs: [P, 3], unit, from the camera outwards.
            features: [P, F], of the distance field.
        """


class Sharpness(Protocol):
    """The learned inv_s, 1/s of the paper."""

    def __call__(self) -> Var:
        """inv_s [1] (`execute` of a module)."""

    def reset(self, inv_s: float) -> None:
        """Replace the parameter by that of this inv_s."""

    def limit(self, inv_s: float) -> None:
        """Reduce the parameter to that of this inv_s if it is larger; does not wait for the device."""


@dataclass(frozen=True)
class SurfaceFields:
    """The networks of a surface."""

    sdf: DistanceField
    color: ColorField
    sharpness: Sharpness

    @property
    def networks(self) -> dict[str, Any]:
        """The networks by their names in checkpoints."""
        names = ("sdf_network_fine", "color_network_fine", "variance_network_fine")
        return dict(zip(names, vars(self).values(), strict=True))


class RadianceField(Protocol):
    """Density and colour, of one network or several."""

    @property
    def networks(self) -> dict[str, Any]:
        """The trained networks, by their names in checkpoints."""

    @property
    def leveled(self) -> Sequence[Leveled]:
        """Those with levels."""

    def density(self, points: Var) -> Var:
        """Densities only, [P, 3] -> [P, 1], per working-frame unit."""

    def evaluate(self, points: Var, view_dirs: Var) -> RadianceOutput:
        """Density and colour at points [P, 3] seen along unit view_dirs [P, 3]; differentiable in the parameters."""

    def with_normals(self, points: Var, view_dirs: Var) -> tuple[RadianceOutput, Var]:
        """The same, not differentiated, and unit normals [P, 3], opposite to the gradient of the density."""

    def raw_of(self, density: np.ndarray) -> np.ndarray:
        """An increasing function of densities [...] that is close to linear in space, for the vertices of meshes."""


@dataclass(frozen=True)
class RadianceFields:
    """The fields of a density; `coarse` is another one, or the same, that determines the samples of `fine`."""

    fine: RadianceField
    coarse: RadianceField | None = None

    @property
    def networks(self) -> dict[str, Any]:
        """The networks by their names in checkpoints."""
        return self.fine.networks | ({} if self.coarse is None else self.coarse.networks)
