"""Checkpoints of the published NeuS (https://github.com/Totoro97/NeuS, commit 6e0a230, `exp_runner.save_checkpoint`).

They contain the state dicts of four networks, the state of `torch.optim.Adam` and the step. The published code reads
images with OpenCV and trains in BGR order; here colours are RGB.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from models.checkpoints.ours import MOMENTS, Checkpoint, CheckpointError
from models.checkpoints.state import StateError, check_moments
from models.checkpoints.torch_archive import read_torch_checkpoint

__all__ = ["NETWORKS", "read_torch_checkpoint", "to_checkpoint"]

# In the order in which the published Runner passes their parameters to Adam.
NETWORKS = ("nerf", "sdf_network_fine", "variance_network_fine", "color_network_fine")

MOST_STEPS = 1 << 40  # a bound, since an integer in a file may have a million digits
_REVERSED = [2, 1, 0]  # BGR to RGB
_COLOR_LAYER = re.compile(r"lin(\d+)\.(weight_v|weight_g|weight|bias)")
# The names of torch.nn.utils.parametrizations.weight_norm, the successor of torch.nn.utils.weight_norm.
_NEWER_NAMES = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}

Tensors = dict[str, dict[str, np.ndarray]]  # network -> state-dict name -> array


def to_checkpoint(raw: dict[str, Any], name: str = "the published checkpoint") -> Checkpoint:
    """Convert the result of `read_torch_checkpoint`: float32, RGB, Adam's moments by name.

    `name` is used in errors. Parameters without Adam state (an unused background network) get zero moments. Raises
    CheckpointError for a missing part, and for moments of wrong shape.
    """
    try:
        tensors = {network: _network(raw, network) for network in NETWORKS}
        step = _count(_part(raw, "iter_step"), "iter_step")
        moments, adam_steps = _adam(_part(raw, "optimizer"), tensors)
        check_moments(moments)
        colors = _color_names(tensors)
    except StateError as error:
        raise CheckpointError(f"{name} is not a checkpoint of the published NeuS: {error}.") from error
    for name in colors:  # from blue, green, red
        network, _, key = name.partition(".")
        tensors[network][key] = tensors[network][key][_REVERSED]
        for named in moments.values():
            named[name] = named[name][_REVERSED]
    return Checkpoint(step, tensors, moments, adam_steps, {"source": "published NeuS"})


def _part(raw: object, key: str) -> Any:
    """raw[key]; raises StateError if it is missing."""
    if not isinstance(raw, dict) or key not in raw:
        raise StateError(f"it has no '{key}'")
    return raw[key]


def _network(raw: dict[str, Any], network: str) -> dict[str, np.ndarray]:
    """One network's state dict under its published names, in the order of its parameters."""
    named = _part(raw, network)
    if not isinstance(named, dict):
        raise StateError(f"its '{network}' is not a state dict")
    return {_published_name(str(key)): _float32(array, f"{network}.{key}") for key, array in named.items()}


def _published_name(key: str) -> str:
    """The published name of the parameter `key`, which may be given by its newer name."""
    for newer, published in _NEWER_NAMES.items():
        key = key.replace(newer, published)
    return key


def _float32(array: object, what: str) -> np.ndarray:
    """`array` as float32; raises StateError for other types, and for NaN and Inf of a diverged training."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise StateError(f"its '{what}' is not a tensor of real numbers")
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    if not np.isfinite(values).all():
        raise StateError(f"its '{what}' contains NaN or infinite numbers")
    return values


def _count(value: object, what: str) -> int:
    """A number of steps: an integer or, from newer versions of PyTorch, a tensor with one element."""
    number = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    if not isinstance(number, int | float) or not 0 <= number <= MOST_STEPS or number != number // 1:
        raise StateError(f"its '{what}' is not a number of steps")
    return int(number)


def _adam(optimizer: object, tensors: Tensors) -> tuple[dict[str, dict[str, np.ndarray]], int]:
    """Adam's moments ("exp_avg", "exp_avg_sq" -> "<network>.<name>" -> array) and its number of steps.

    Adam numbers the parameters in the order of the networks and of their state dicts; moments without state are zero.
    """
    parameters = {f"{network}.{key}": array for network, named in tensors.items() for key, array in named.items()}
    states, indices = _part(optimizer, "state"), _parameter_indices(optimizer)
    if not isinstance(states, dict) or len(indices) != len(parameters):
        raise StateError(f"its optimizer has {len(indices)} parameters, its networks have {len(parameters)}")
    moments: dict[str, dict[str, np.ndarray]] = {moment: {} for moment in MOMENTS}
    steps = set()
    for index, (name, parameter) in zip(indices, parameters.items(), strict=True):
        state = states.get(index)
        if state is not None:
            steps.add(_count(_part(state, "step"), "optimizer.step"))
        for moment in MOMENTS:
            array = np.zeros_like(parameter) if state is None else _float32(_part(state, moment), f"optimizer.{moment}")
            if array.shape != parameter.shape:
                shapes = f"{array.shape}, not {parameter.shape}"
                raise StateError(f"its optimizer's '{moment}' of '{name}' has shape {shapes}")
            moments[moment][name] = array
    if len(steps) > 1:
        raise StateError("its optimizer has taken different numbers of steps for different parameters")
    return moments, max(steps, default=0)


def _parameter_indices(optimizer: object) -> list[Any]:
    """The keys of Adam's per-parameter state, in the order of the parameters."""
    groups = _part(optimizer, "param_groups")
    lists: list[Any] = [_part(group, "params") for group in groups] if isinstance(groups, list) else [None]
    if not all(isinstance(indices, list) for indices in lists):
        raise StateError("its optimizer's 'param_groups' do not list parameters")
    indices = [index for indices in lists for index in indices]
    if any(type(index) is not int for index in indices):
        raise StateError("its optimizer's 'params' are not numbers")
    return indices


def _color_names(tensors: Tensors) -> frozenset[str]:
    """The "<network>.<name>" of every parameter whose rows are the three colours.

    They are the last layer of the colour network and the background's `rgb_linear`.
    """
    layers = [match for match in map(_COLOR_LAYER.fullmatch, tensors["color_network_fine"]) if match]
    if not layers:
        raise StateError("its 'color_network_fine' has no layers")
    last = max(int(match[1]) for match in layers)
    names = [f"color_network_fine.{match[0]}" for match in layers if int(match[1]) == last]
    names += [f"nerf.{name}" for name in ("rgb_linear.weight", "rgb_linear.bias") if name in tensors["nerf"]]
    for name in names:
        network, _, key = name.partition(".")
        if tensors[network][key].shape[:1] != (len(_REVERSED),):
            raise StateError(f"its '{name}' does not have three rows, one for each colour")
    return frozenset(names)
