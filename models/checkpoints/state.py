"""Validation of a checkpoint's state: type and range of each key, before it is used.

The checksum detects damage, but not a file made by another program. Unknown keys are ignored, since later versions may
add some.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import INVALID, UserError
from models.machine.available import available_bytes
from models.methods.conf import parse_config
from models.plan import PLAN_KEY, of_state

LARGEST_MATRIX_ENTRY = 1e30  # larger entries overflow when multiplied
REAL_KINDS = {"F16": 2, "F32": 4, "F64": 8}  # safetensors' types of weights, and their bytes
WHOLE_KINDS = frozenset({"BOOL", "U8", "I8", "I16", "I32", "I64"})  # further types of buffers
BUFFERS = "buffer/"  # prefix of the names of buffers
GROUPS = 4  # weights, averaged weights and two moments: each has every parameter at most once
MOST_BYTES_UNBOUND = 1 << 30  # of a file without a conf; the published networks have 17 MB with their moments
HEADER_BYTES = 1 << 24  # for names, conf and the order of the images
DATA = ("photographs", "masks", "cameras", "points")  # see models.checkpoints.scenes
READING_COPIES = 3  # in memory: the file's pages, the arrays, and the bytes of one array for the checksum


class StateError(ValueError):
    """An invalid state; the text is a clause that says why."""


def check_state(state: object) -> dict[str, Any]:
    """`state`, a decoded JSON value; raises StateError, naming the key, if it is invalid."""
    if type(state) is not dict:
        raise StateError("its state is not an object")
    for key, fits in _FITS.items():
        try:
            is_valid = key not in state or fits(state[key])
        except INVALID:
            is_valid = False
        if not is_valid:
            raise StateError(f"the {key} in its state is invalid")
    if ("sampler" in state) != ("jitter" in state):
        raise StateError("its state has only one of sampler and jitter")
    return state


def require_modest(path: Path, file: Any, state: Mapping[str, Any]) -> None:
    """Check types and size of an opened safetensors file before its arrays are read.

    Raises StateError for an array of another type than weights have, and for a file far larger than the networks of its
    conf; MemoryError for a file that does not fit into memory.
    """
    for key in file.keys():  # noqa: SIM118 (not a dict)
        kind = file.get_slice(key).get_dtype()
        is_buffer = key.startswith(BUFFERS) and kind in WHOLE_KINDS
        if kind not in REAL_KINDS and not is_buffer:
            raise StateError(f"{key} has the type {kind}, which weights cannot have")
    size, most = path.stat().st_size, _most_bytes(state)
    if size > most:
        raise StateError(f"it has {size} bytes, and its networks need {most} at most")
    if READING_COPIES * size > available_bytes():
        raise MemoryError


def _most_bytes(state: Mapping[str, Any]) -> int:
    """The largest size in bytes of a checkpoint with this state."""
    try:
        model = parse_config(state["conf"], "the checkpoint's conf").model
    except (KeyError, UserError):  # an invalid conf is reported when it is compared with that of the run
        return MOST_BYTES_UNBOUND
    return GROUPS * max(REAL_KINDS.values()) * model.parameters + model.buffer_bytes + HEADER_BYTES


def check_moments(moments: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Raises StateError for moments that are not finite as float32, and for negative second moments."""
    for moment, named in moments.items():
        for name, values in named.items():
            with np.errstate(over="ignore"):
                single = values.astype(np.float32)
            if not np.isfinite(single).all():
                raise StateError(f"its {moment} of {name} is not finite")
            if moment == "exp_avg_sq" and (single < 0.0).any():
                raise StateError(f"its {moment} of {name} is a second moment and has negative numbers")


# Whether the value of a key is valid; of values of other shapes these may raise the exceptions in `check_state`.


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_whole(value: object, least: int, most: int) -> bool:
    """Whether `value` is an integer (not bool) in least..most."""
    return type(value) is int and least <= value <= most


def _are_numbers(rows: list[Any], largest: float = sys.float_info.max) -> bool:
    """Whether this is a list of lists of finite numbers."""
    numbers: list[Any] = [number for row in rows for number in (row if type(row) is list else [None])]
    return type(rows) is list and all(type(x) in (int, float) and abs(x) <= largest for x in numbers)


def _is_chunk(value: Any) -> bool:
    """{"rays": 1..batch, "for": [batch, memory limit]}, see models.training.measured."""
    batch, limit = value["for"]
    is_batch = _is_whole(batch, 1, 2**63 - 1) and type(limit) in (int, float, str)
    return is_batch and _is_whole(value["rays"], 1, batch)


def _is_similarity(value: Any) -> bool:
    """A matrix [4, 4]."""
    is_matrix = _are_numbers(value, LARGEST_MATRIX_ENTRY) and list(map(len, value)) == [4] * 4
    return is_matrix and math.hypot(*(row[0] for row in value[:3])) > 0.0


def _is_generator(value: Any) -> bool:
    """The state of a `numpy.random.Generator`."""
    is_state = all(_is_whole(value["state"][name], 0, 2**128 - 1) for name in ("state", "inc"))
    is_rest = _is_whole(value["has_uint32"], 0, 1) and _is_whole(value["uinteger"], 0, 2**32 - 1)
    return value["bit_generator"] == "PCG64" and is_state and is_rest  # numpy's default


def _is_sampler(value: Any) -> bool:
    """The generator and, if present, the order of the images and the position in it.

    Further entries are validated by the sampler itself.
    """
    if "order" not in value:
        return _is_generator(value["generator"])
    order = value["order"]
    is_order = type(order) is list and all(type(view) is int for view in order) and len(order) > 0
    is_order = is_order and sorted(order) == list(range(len(order))) and _is_whole(value["position"], 0, len(order))
    return _is_generator(value["generator"]) and is_order


def _is_data(value: Any) -> bool:
    """Numbers of the scene by kind and name, see models.checkpoints.scenes."""
    return value.keys() <= {*DATA} and _are_numbers([row for table in value.values() for row in table.values()])


def _is_watch(value: Any) -> bool:
    """Counts and scores of the training, see models.training.record."""
    counts = {name: number for name, number in value.items() if name not in ("curve", "best", "group")}
    is_score = _are_numbers([*value.get("curve", []), [value.get("best", 0.0)]]) and _is_text(value.get("group", ""))
    return is_score and all(_is_whole(number, 0, 2**53) for number in counts.values())


_FITS: dict[str, Callable[[Any], bool]] = {
    "conf": _is_text,
    "source": _is_text,
    "seconds": lambda value: type(value) in (int, float) and 0 <= value <= 1e12,  # 30,000 years
    "ray_chunk": _is_chunk,
    "scene_to_world": _is_similarity,
    "data": _is_data,
    "sampler": _is_sampler,
    "jitter": _is_generator,
    "watch": _is_watch,
    "setbacks": _is_watch,  # with the next two, of version 0.2
    "scores": _is_watch,
    "score_curve": _are_numbers,
    "stopped": _is_text,
    PLAN_KEY: lambda value: of_state(value) is not None,
}
