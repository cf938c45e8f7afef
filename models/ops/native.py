"""A native operation that is differentiable once: `NAME` of a source, and its gradient `NAME_backward`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from models.machine.backend import jt
from models.ops.source import Outputs, Source
from models.structs import Var

# Inputs, outputs and cotangents of an operation -> the inputs of its gradient.
Given = Callable[[list[Var], list[Var], list[Var]], list[Var]]


def differentiable(
    source: Source,
    name: str,
    layout: Any,
    outputs: Outputs,
    inputs: Sequence[Var],
    trained: Sequence[int] | None = None,
    given: Given | None = None,
) -> Any:
    """The outputs of `name(layout, inputs)`: a Var, or a tuple; those that are not floats have no gradient.

    Args:
        trained: indices of the inputs that have gradients; None for all.
        given: the inputs of the gradient; by default `inputs`, then the cotangents. The outputs are only kept for it.
    """
    indices = range(len(inputs)) if trained is None else trained
    return _Native(source, name, layout, outputs, list(inputs), indices, given)(*(inputs[index] for index in indices))


def with_slopes(source: Source, name: str, layout: Any, outputs: Outputs, inputs: Sequence[Var]) -> Var:
    """The first output of `name(layout, inputs)`; the others are its derivatives with respect to the first inputs."""
    return _WithSlopes(source, name, layout, outputs, list(inputs))(*inputs[: len(outputs) - 1])


class _Native(jt.Function):
    """Stores its inputs, and its outputs if the gradient needs them."""

    def __init__(
        self,
        source: Source,
        name: str,
        layout: Any,
        outputs: Outputs,
        inputs: list[Var],
        trained: Sequence[int],
        given: Given | None,
    ) -> None:
        super().__init__()
        self.source, self.name, self.layout, self.outputs = source, name, layout, outputs
        self.inputs, self.trained, self.given = inputs, trained, given
        self.found: list[Var] = []

    def execute(self, *values: Var) -> Var | tuple[Var, ...]:
        """The outputs."""
        inputs = list(self.inputs)
        for index, value in zip(self.trained, values, strict=True):
            inputs[index] = value
        found = self.source.call(self.name, self.layout, self.outputs, inputs)
        found = [
            value if kind == "float32" else value.stop_grad()
            for value, (_, kind) in zip(found, self.outputs, strict=True)
        ]
        if self.given is not None:
            self.found = found
        return tuple(found) if len(found) > 1 else found[0]

    def grad(self, *cotangents: Var | None) -> tuple[Var, ...]:
        """Cotangents of the trained inputs; zeros replace those of outputs that the loss does not depend on."""
        pairs = zip(cotangents, self.outputs, strict=True)
        filled = [jt.zeros(shape) if value is None else value for value, (shape, _) in pairs]
        inputs = [*self.inputs, *filled] if self.given is None else self.given(self.inputs, self.found, filled)
        shapes = [(tuple(self.inputs[index].shape), "float32") for index in self.trained]
        return tuple(self.source.call(f"{self.name}_backward", self.layout, shapes, inputs))


class _WithSlopes(jt.Function):
    """Stores only the derivatives."""

    def __init__(self, source: Source, name: str, layout: Any, outputs: Outputs, inputs: list[Var]) -> None:
        super().__init__()
        self.call, self.inputs = partial(source.call, name, layout, outputs), inputs

    def execute(self, *values: Var) -> Var:
        """The first output."""
        first, *self.slopes = self.call([*values, *self.inputs[len(values) :]])
        return first

    def grad(self, cotangent: Var) -> tuple[Var, ...]:
        """Cotangents of the first inputs."""
        return tuple(slopes * cotangent for slopes in self.slopes)
