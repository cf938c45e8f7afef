"""Checkpoints of this program: one safetensors file each, with JSON in its header and without pickle.

A file is written under a temporary name, synced and renamed, so `ckpt_*.safetensors` was complete when written; a
SHA-256 over its content detects later damage.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from data.errors import INVALID, reason
from data.io.files import make_folder, write_atomically
from models.machine.available import available_bytes
from models.plan import PLAN_KEY, plan_from_state
from models.training.checkpoint import MOMENTS, Checkpoint, CheckpointError

FORMAT = "neus-jittor"
SCHEMA = 3  # increase it when older versions would misread newer files
EMA_SCHEMA = 2  # of a file without buffers, which older versions can read
PLAIN_SCHEMA = 1  # of a file without buffers and averaged weights, likewise
LARGEST_STEP = 2**53  # a double represents all smaller integers

# Header names: network/<network>/<name>, ema/<network>/<name>, buffer/<name> and <moment>/<network>.<name>.
_NETWORK_PREFIX, _EMA_PREFIX, _BUFFER_PREFIX = "network", "ema", "buffer"
# Exceptions of safetensors and json for damaged files.
_DAMAGE = (SafetensorError, EOFError, *INVALID)
REAL_TYPES = ("F16", "F32", "F64")  # safetensors' types of weights
WHOLE_TYPES = ("BOOL", "U8", "I8", "I16", "I32", "I64")  # further types of buffers
READING_COPIES = 3  # in memory: the file's pages, the arrays, and the bytes of one array for the checksum
FRAME_KEY, DATA_KEY = "scene_to_world", "data"  # of the state, see models.checkpoints.scenes
SCENE_TABLES = ("photographs", "masks", "cameras", "points")  # the tables of numbers under DATA_KEY
LARGEST_MATRIX_ENTRY = 1e30  # larger entries overflow when multiplied


class StateError(ValueError):
    """An invalid state; the text is a clause that says why."""


def checkpoint_name(step: int) -> str:
    """The file name of the checkpoint after `step` steps; six digits, as in the published code."""
    return f"ckpt_{step:06d}.safetensors"


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` into `folder` (created if needed) and return the path; earlier checkpoints are kept.

    Raises CheckpointError if writing fails: existing files are unchanged then, and no incomplete file remains. Raises
    TypeError for a `state` that is not JSON.
    """
    path = folder / checkpoint_name(checkpoint.step)
    content = encoded(checkpoint)
    try:
        make_folder(folder.parent, folder.name)
        write_atomically(path, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"The checkpoint {path} cannot be written ({reason}): free some space or choose a writable folder."
        ) from error
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint of `save_checkpoint`.

    Raises CheckpointError for a file that is missing, unreadable, truncated, modified, foreign or of a newer schema.
    """
    try:
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise CheckpointError(f"The checkpoint {path} cannot be read (it is not a file).")
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(
                    f"{path} is not a checkpoint of this program: give a ckpt_*.safetensors file it wrote."
                )
            schema = int(metadata["schema"])
            if schema > SCHEMA:
                raise CheckpointError(
                    f"{path} was written by a newer version of this program (schema {schema}, this one reads up to "
                    f"{SCHEMA}): update the program."
                )
            state = check_state(json.loads(metadata["state"]))
            for key in file.keys():  # noqa: SIM118 (not a dict)
                kind = file.get_slice(key).get_dtype()
                if kind not in (*REAL_TYPES, *(WHOLE_TYPES if key.startswith(f"{_BUFFER_PREFIX}/") else ())):
                    raise StateError(f"{key} has the type {kind}, which weights cannot have")
            if READING_COPIES * path.stat().st_size > available_bytes():
                raise MemoryError
            arrays = {key: np.array(file.get_tensor(key)) for key in file.keys()}  # noqa: SIM118 (not a dict)
        return _decode(arrays, metadata, state)
    except FileNotFoundError as error:
        raise CheckpointError(f"There is no checkpoint {path}: give the path of an existing file.") from error
    except OSError as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read ({error.strerror or error}).") from error
    except MemoryError as error:
        raise CheckpointError(f"The checkpoint {path} does not fit into memory: end other programs.") from error
    except _DAMAGE as error:
        raise CheckpointError(
            f"{path} is damaged, or is not a checkpoint of this program ({reason(error)}): use another one."
        ) from error


def check_state(state: object) -> dict[str, Any]:
    """`state`, a decoded JSON value; raises StateError, naming the key, for values that other modules cannot use.

    Unknown keys are ignored, since later versions may add some.
    """
    if not isinstance(state, dict):
        raise StateError("its state is not an object")
    for key, is_valid in _VALID.items():
        try:
            if key in state and not is_valid(state[key]):
                raise ValueError
        except INVALID as error:
            raise StateError(f"the {key} in its state is invalid") from error
    return state


def _are_numbers(rows: Any, largest: float = sys.float_info.max) -> bool:
    """Whether this is a list of lists of finite numbers."""
    return all(type(number) in (int, float) and abs(number) <= largest for row in rows for number in row)


# Whether the value of a key is valid; for values of other shapes these raise one of INVALID.
_VALID: dict[str, Callable[[Any], bool]] = {
    "conf": lambda value: isinstance(value, str),
    "seconds": lambda value: type(value) in (int, float) and 0 <= value <= 1e12,  # 30,000 years
    FRAME_KEY: lambda value: (
        [len(row) for row in value] == [4] * 4
        and _are_numbers(value, LARGEST_MATRIX_ENTRY)
        and math.hypot(*(row[0] for row in value[:3])) > 0.0
    ),
    DATA_KEY: lambda value: (
        value.keys() <= {*SCENE_TABLES} and all(_are_numbers(table.values()) for table in value.values())
    ),
    PLAN_KEY: lambda value: plan_from_state(value) is not None,
}


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


def not_finite(checkpoint: Checkpoint) -> str | None:
    """The name of the first array of `checkpoint` that contains NaN or Inf; None if all are finite."""
    return next((name for name, array in _flatten(checkpoint) if not np.isfinite(array).all()), None)


def header_step(path: Path) -> int | None:
    """The step in the header of a checkpoint of any version of this program; None for other files.

    The checksum is not verified.
    """
    try:
        if not path.is_file():
            return None
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            step = int(metadata["step"])
    except (OSError, MemoryError, *_DAMAGE):
        return None
    if metadata.get("format") != FORMAT:
        return None
    return step if 0 <= step <= LARGEST_STEP else None


def encoded(checkpoint: Checkpoint) -> bytes:
    """The content of a checkpoint file."""
    arrays = {  # C-ordered and in native byte order, since safetensors copies raw memory
        name: np.asarray(array).astype(array.dtype.newbyteorder("="), order="C", copy=False)
        for name, array in _flatten(checkpoint)
    }
    metadata = {
        "format": FORMAT,
        "schema": str(SCHEMA if checkpoint.buffers else EMA_SCHEMA if checkpoint.ema else PLAIN_SCHEMA),
        "step": str(checkpoint.step),
        "adam_steps": str(checkpoint.adam_steps),
        "state": json.dumps(checkpoint.state),
    }
    return save(arrays, metadata={**metadata, "sha256": digest_of(arrays, metadata)})


def _flatten(checkpoint: Checkpoint) -> Iterator[tuple[str, np.ndarray]]:
    """Name and array of every stored tensor."""
    for prefix, networks in ((_NETWORK_PREFIX, checkpoint.tensors), (_EMA_PREFIX, checkpoint.ema)):
        for network, named in networks.items():
            for name, array in named.items():
                yield f"{prefix}/{network}/{name}", array
    for moment in MOMENTS:
        for name, array in checkpoint.moments.get(moment, {}).items():
            yield f"{moment}/{name}", array
    for name, array in checkpoint.buffers.items():
        yield f"{_BUFFER_PREFIX}/{name}", array


def _decode(arrays: dict[str, np.ndarray], metadata: dict[str, str], state: dict[str, Any]) -> Checkpoint:
    """The inverse of `encoded`; raises ValueError or KeyError for content that `encoded` does not write."""
    if metadata["sha256"] != digest_of(arrays, {key: text for key, text in metadata.items() if key != "sha256"}):
        raise ValueError("its checksum does not match")
    networks: dict[str, dict[str, dict[str, np.ndarray]]] = {_NETWORK_PREFIX: {}, _EMA_PREFIX: {}}
    plain: dict[str, dict[str, np.ndarray]] = {name: {} for name in (*MOMENTS, _BUFFER_PREFIX)}
    for key, array in arrays.items():
        group, _, name = key.partition("/")
        if group in networks:
            network, _, name = name.partition("/")
            networks[group].setdefault(network, {})[name] = array
        else:
            plain[group][name] = array
    buffers = plain.pop(_BUFFER_PREFIX)
    check_moments(plain)
    step, adam_steps = (int(metadata[key]) for key in ("step", "adam_steps"))
    if not (0 <= step <= LARGEST_STEP and 0 <= adam_steps <= LARGEST_STEP):
        raise ValueError("its number of steps is invalid")
    return Checkpoint(step, networks[_NETWORK_PREFIX], plain, adam_steps, state, networks[_EMA_PREFIX], buffers)


def digest_of(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    """SHA-256 (hex) over names, types, shapes and bytes of `arrays` and over `metadata`, in sorted order."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for key in sorted(arrays):
        array = arrays[key]
        digest.update(json.dumps([key, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
