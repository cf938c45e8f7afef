"""Validation of a checkpoint's state: type and range of each key, before it is used.

The checksum detects damage, but not a file made by another program. Unknown keys are ignored, since later versions may
add some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UserError
from models.machine.available import available_bytes
from models.methods.conf import parse_config

GENERATOR = "PCG64"  # numpy's default, the only one whose state is saved
LARGEST_MATRIX_ENTRY = 1e30  # larger entries overflow when multiplied
LONGEST_TRAINING = 1e12  # seconds; 30,000 years
REAL_KINDS = {"F16": 2, "F32": 4, "F64": 8}  # safetensors' types of weights, and their bytes
WHOLE_KINDS = frozenset({"BOOL", "U8", "I8", "I16", "I32", "I64"})  # further types of buffers
BUFFERS = "buffer/"  # prefix of the names of buffers
GROUPS = 4  # weights, averaged weights and two moments: each has every parameter at most once
MOST_BYTES_UNBOUND = 1 << 30  # of a file without a conf; the published networks have 17 MB with their moments
HEADER_BYTES = 1 << 24  # for names, conf and the order of the images
DATA = ("photographs", "masks", "cameras", "points")  # see models.checkpoints.same_scene
READING_COPIES = 3  # in memory: the file's pages, the arrays, and the bytes of one array for the checksum


class StateError(ValueError):
    """An invalid state; the text is a clause that says why."""


def check_state(state: object) -> dict[str, Any]:
    """`state`, a decoded JSON value; raises StateError, naming the key, if it is invalid."""
    if type(state) is not dict:
        raise StateError("its state is not an object")
    for key, check in _CHECKS.items():
        if key in state:
            check(state[key], key)
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


def _check_text(value: object, key: str) -> None:
    if type(value) is not str:
        raise StateError(f"the {key} in its state is not a text")


def _check_seconds(value: Any, key: str) -> None:
    if type(value) not in (int, float) or not 0 <= value <= LONGEST_TRAINING:
        raise StateError(f"the {key} in its state are not a time")


def _check_chunk(value: object, key: str) -> None:
    """{"rays": 1..batch, "for": [batch, memory limit]}, see models.training.measured."""
    sizes = _part(value, "for", key)
    is_pair = type(sizes) is list and len(sizes) == 2
    if not is_pair or not _is_whole(sizes[0], 1, 2**63 - 1) or type(sizes[1]) not in (int, float, str):
        raise StateError(f"the {key} in its state has no valid batch size")
    if not _is_whole(_part(value, "rays", key), 1, sizes[0]):
        raise StateError(f"the {key} in its state is not a number of rays")


def _check_matrix(value: object, key: str) -> None:
    """A similarity [4, 4]."""
    rows = value if type(value) is list and len(value) == 4 else []
    numbers = [number for row in rows if type(row) is list and len(row) == 4 for number in row]
    is_sane = all(type(number) in (int, float) and abs(number) <= LARGEST_MATRIX_ENTRY for number in numbers)
    if len(numbers) != 16 or not is_sane or math.hypot(*(row[0] for row in rows[:3])) == 0.0:
        raise StateError(f"the {key} in its state is not a similarity matrix")


def _check_generator(value: object, key: str) -> None:
    kind, numbers = _part(value, "bit_generator", key), _part(value, "state", key)
    state, inc = _part(numbers, "state", key), _part(numbers, "inc", key)
    is_state = _is_whole(state, 0, 2**128 - 1) and _is_whole(inc, 0, 2**128 - 1)
    is_rest = _is_whole(_part(value, "has_uint32", key), 0, 1) and _is_whole(
        _part(value, "uinteger", key), 0, 2**32 - 1
    )
    if kind != GENERATOR or not is_state or not is_rest:
        raise StateError(f"the {key} in its state is not a random state of {GENERATOR}")


def _check_sampler(value: Any, key: str) -> None:
    """The generator and, if present, the order of the images and the position in it.

    Further entries are validated by the sampler itself.
    """
    _check_generator(_part(value, "generator", key), f"generator of the {key}")
    if "order" not in value:
        return
    order = value["order"]
    is_order = type(order) is list and all(type(view) is int for view in order) and len(order) > 0
    if not is_order or sorted(order) != list(range(len(order))):
        raise StateError(f"the order of the {key} in its state is not a permutation")
    if not _is_whole(_part(value, "position", key), 0, len(order)):
        raise StateError(f"the position of the {key} in its state is invalid")


def _check_data(value: Any, key: str) -> None:
    """Numbers of the scene by kind and name, see models.checkpoints.same_scene."""
    is_known = type(value) is dict and value.keys() <= {*DATA}
    tables = list(value.values()) if is_known else [None]
    rows = [row for table in tables for row in (table.values() if type(table) is dict else [None])]
    if not _are_finite(rows):
        raise StateError(f"the {key} in its state are not finite numbers of {', '.join(DATA)}")


def _check_watch(value: object, key: str) -> None:
    """Counts and scores of the training, see models.training.record."""
    entries = dict(value) if type(value) is dict else {"": None}
    _check_curve(entries.pop("curve", []), key)
    _check_curve([[entries.pop("best", 0.0)]], key)
    _check_text(entries.pop("group", ""), key)
    if not all(_is_whole(number, 0, 2**53) for number in entries.values()):
        raise StateError(f"the {key} in its state are not counts")


def _check_curve(value: object, key: str) -> None:
    """Rows of finite numbers."""
    rows = value if type(value) is list else [None]
    if not _are_finite(rows):
        raise StateError(f"the {key} in its state has entries that are not finite numbers")


def _are_finite(rows: list[Any]) -> bool:
    """Whether all rows are lists of finite numbers."""
    return all(type(row) is list and all(type(x) in (int, float) and math.isfinite(x) for x in row) for row in rows)


def _part(value: object, name: str, key: str) -> Any:
    """value[name]; raises StateError if it is missing."""
    if type(value) is not dict or name not in value:
        raise StateError(f"the {key} in its state has no {name}")
    return value[name]


def _is_whole(value: object, least: int, most: int) -> bool:
    """Whether `value` is an integer (not bool) in least..most."""
    return type(value) is int and least <= value <= most


_CHECKS: dict[str, Callable[[object, str], None]] = {
    "conf": _check_text,
    "source": _check_text,
    "seconds": _check_seconds,
    "ray_chunk": _check_chunk,
    "scene_to_world": _check_matrix,
    "data": _check_data,
    "sampler": _check_sampler,
    "jitter": _check_generator,
    "watch": _check_watch,
    "setbacks": _check_watch,  # with the next two, of version 0.2
    "scores": _check_watch,
    "score_curve": _check_curve,
    "stopped": _check_text,
}
