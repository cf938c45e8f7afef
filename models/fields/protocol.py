"""What the fields of a surface are to the renderer: any module with these methods can stand in their place.

A field is a `jt.nn.Module` (its parameters are trained and saved) that can be evaluated as it is now: `at_weights` is
called once for a rendering, so that nothing is computed twice from the same weights. P points.
"""

from __future__ import annotations

from typing import Protocol

from models.structs import FieldOutput, Var


class DistanceAtWeights(Protocol):
    """A signed-distance field with the weights it has now."""

    def distance(self, points: Var) -> Var:
        """Signed distances only, [P, 3] -> [P, 1]; not differentiated."""

    def evaluate(self, points: Var) -> FieldOutput:
        """Signed distance, feature and gradient at points [P, 3]; differentiable in the parameters."""


class DistanceField(Protocol):
    """A signed-distance field, negative inside the object."""

    def at_weights(self) -> DistanceAtWeights:
        """The field as it is now."""


class ColorField(Protocol):
    """The colour of a surface."""

    def execute(self, points: Var, normals: Var, view_dirs: Var, features: Var) -> Var:
        """RGB [P, 3] in [0, 1]; differentiable in the parameters, in normals and in features.

        Args:
            points: [P, 3].
            normals: [P, 3], the gradient of the distance, not normalised.
            view_dirs: [P, 3], unit, from the camera outwards.
            features: [P, F], of the distance field.
        """
