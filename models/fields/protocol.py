"""The interfaces of fields; modules that implement them can replace the published networks.

A field is a `jt.nn.Module` with trained and saved parameters, or contains such modules. `at_weights` binds a distance
to its current parameters; it is called once per rendering, so that nothing is computed twice from the same weights. P
points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from models.structs import FieldOutput, RadianceOutput, Var

# The eikonal loss keeps the norm of the SDF gradient near 1; between two points it is assumed not to exceed this.
STEEPEST = 1.5


@dataclass(frozen=True)
class DistanceAtWeights:
    """A signed-distance field with bound parameters: functions of points [P, 3]."""

    distance: Callable[[Var], Var]  # signed distances only, [P, 1]; not differentiated
    evaluate: Callable[[Var], FieldOutput]  # differentiable in the parameters


class DistanceField(Protocol):
    """A signed-distance field, negative inside the object."""

    def at_weights(self) -> DistanceAtWeights:
        """The field bound to its current parameters."""


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


@dataclass(frozen=True)
class SurfaceFields:
    """The networks of a surface."""

    sdf: DistanceField
    color: ColorField
    sharpness: Callable[[], Var]  # inv_s [1], 1/s of the paper

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
