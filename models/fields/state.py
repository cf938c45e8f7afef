"""Parameters of a field as NumPy arrays by their published names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.machine.backend import jt
from models.structs import Var

# The published code stores this one as a scalar; Jittor has no 0-d arrays.
SCALAR_NAMES = frozenset({"variance"})


def named_parameters(field: jt.nn.Module) -> dict[str, Var]:
    """Trainable Vars by published name, in the order in which the published code passes them to its optimiser.

    That is PyTorch's order: the bias of a weight-normalised layer first, of a plain layer last.
    """
    by_layer: dict[str, dict[str, Var]] = {}
    for name, value in field.state_dict().items():
        layer, _, leaf = name.rpartition(".")
        by_layer.setdefault(layer, {})[leaf] = value
    order = {"weight": 0, "bias": 1, "weight_g": 2, "weight_v": 3}
    return {
        f"{layer}.{leaf}" if layer else leaf: leaves[leaf]
        for layer, leaves in by_layer.items()
        for leaf in sorted(leaves, key=lambda leaf: order.get(leaf, 0))
    }


def export_state(field: jt.nn.Module) -> dict[str, np.ndarray]:
    """Copies of the parameters."""
    arrays = {name: value.numpy() for name, value in named_parameters(field).items()}
    return {name: value.reshape(()) if name in SCALAR_NAMES else value for name, value in arrays.items()}


def import_state(field: jt.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Overwrite the parameters. Raises ValueError, naming the entry and changing nothing, if names or shapes differ."""
    parameters = named_parameters(field)
    if missing := sorted(set(parameters) - set(arrays)):
        raise ValueError(f"{missing[0]} is missing")
    if unknown := sorted(set(arrays) - set(parameters)):
        raise ValueError(f"{unknown[0]} does not belong to this network")
    for name, parameter in parameters.items():
        if arrays[name].size != parameter.numel() or tuple(arrays[name].shape or (1,)) != tuple(parameter.shape):
            raise ValueError(f"{name} has shape {list(arrays[name].shape)}, expected {list(parameter.shape)}")
    for name, parameter in parameters.items():
        value = np.ascontiguousarray(arrays[name], np.float32).reshape(parameter.shape)
        parameter.update(jt.array(value).detach())
        parameter.start_grad()


def take_rows(field: jt.nn.Module, shapes: Mapping[str, Sequence[int]]) -> None:
    """Resize each parameter to as many rows (first axis) as its entry of `shapes` has; values must be imported.

    Raises ValueError, changing nothing, if an entry is missing or differs in another axis.
    """
    parameters = named_parameters(field)
    for name, parameter in parameters.items():
        if tuple(shapes.get(name, ()))[1:] != tuple(parameter.shape)[1:] or not shapes.get(name):
            raise ValueError(
                f"{name} has shape {list(shapes.get(name, ()))}, expected rows of {list(parameter.shape)[1:]}"
            )
    for name, parameter in parameters.items():
        parameter.update(jt.zeros(tuple(shapes[name])).detach())
        parameter.start_grad()
