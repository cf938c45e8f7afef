"""Checkpoints of our own: one safetensors file each, JSON in its header, no pickle anywhere.

A file is written beside its final name, synced and renamed, so a name `ckpt_*.safetensors` always means a file that
was once complete; a SHA-256 over everything that counts finds what happened to it since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from data.errors import UserError, reason
from data.io.files import make_folder, write_atomically
from models.checkpoints.state import check_moments, check_state, require_modest

FORMAT = "neus-jittor"
SCHEMA = 3  # raise it when a reader of the older files would misread the newer ones
EMA_SCHEMA = 2  # of a file without buffers, which the older reader takes as well
PLAIN_SCHEMA = 1  # of a file without averaged weights either, likewise
MOST_STEPS = 2**53  # beyond it a double skips whole numbers
MOMENTS = ("exp_avg", "exp_avg_sq")  # the names Adam's running means have in the published checkpoints

_STEPS = re.compile(r"[0-9]{1,16}")
# Header names: network/<network>/<name>, ema/<network>/<name>, buffer/<name> and <moment>/<network>.<name>.
_NETWORK_PREFIX, _EMA_PREFIX, _BUFFER_PREFIX = "network", "ema", "buffer"
# What safetensors and json were seen to raise on damaged bytes.
_DAMAGE = (SafetensorError, ValueError, KeyError, TypeError, EOFError, RecursionError)


class CheckpointError(UserError):
    """A checkpoint that cannot be written or read, in one sentence that names it."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on as if it had never stopped, or to give its results."""

    step: int  # optimiser steps taken
    tensors: dict[str, dict[str, np.ndarray]]  # network -> state-dict name -> array, as published
    moments: dict[str, dict[str, np.ndarray]]  # "exp_avg" / "exp_avg_sq" -> "<network>.<name>" -> array
    adam_steps: int  # steps counted by Adam's bias correction
    state: dict[str, Any] = field(default_factory=dict)  # JSON values only: str keys, lists (not tuples), any int
    ema: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # averaged weights, as tensors; {} without
    buffers: dict[str, np.ndarray] = field(default_factory=dict)  # what else the kind of model keeps; {} without


def checkpoint_name(step: int) -> str:
    """The file name of the checkpoint after `step` steps; six digits, as the published code has."""
    return f"ckpt_{step:06d}.safetensors"


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` into `folder` (made if need be) and return the file; earlier checkpoints stay.

    Raises CheckpointError where the disk does not take it: no earlier file changes then, and nothing half-written is
    left. Raises TypeError for a `state` that JSON cannot hold.
    """
    path = folder / checkpoint_name(checkpoint.step)
    content = _encode(checkpoint)
    try:
        make_folder(folder.parent, folder.name)
        write_atomically(path, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"The checkpoint {path} cannot be written ({reason}): make room or choose a folder that can be written to."
        ) from error
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint that `save_checkpoint` wrote.

    Raises CheckpointError for a file that is missing, unreadable, truncated, altered, foreign or of a newer schema.
    """
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer for ever
            raise CheckpointError(f"The checkpoint {path} cannot be read (it is not a file).")
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            _check_format(path, metadata)
            state = check_state(json.loads(metadata["state"]))
            require_modest(path, file, state)
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


def not_finite(checkpoint: Checkpoint) -> str | None:
    """The name of the first array of `checkpoint` that holds NaN or an infinity; None where all are finite."""
    return next((name for name, array in _flatten(checkpoint) if not np.isfinite(array).all()), None)


def header_step(path: Path) -> int | None:
    """The step that the header of a checkpoint of this program tells, of whatever version; None for other files.

    What it tells is not verified.
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
    return step if 0 <= step <= MOST_STEPS else None


def _encode(checkpoint: Checkpoint) -> bytes:
    """The file's content."""
    arrays = dict(_flatten(checkpoint))
    metadata = {
        "format": FORMAT,
        "schema": str(SCHEMA if checkpoint.buffers else EMA_SCHEMA if checkpoint.ema else PLAIN_SCHEMA),
        "step": str(checkpoint.step),
        "adam_steps": str(checkpoint.adam_steps),
        "state": json.dumps(checkpoint.state),
    }
    return save(arrays, metadata={**metadata, "sha256": _digest(arrays, metadata)})


def _flatten(checkpoint: Checkpoint) -> Iterator[tuple[str, np.ndarray]]:
    """Header name and array of all that is stored."""
    for prefix, networks in ((_NETWORK_PREFIX, checkpoint.tensors), (_EMA_PREFIX, checkpoint.ema)):
        for network, named in networks.items():
            for name, array in named.items():
                yield f"{prefix}/{network}/{name}", _plain(array)
    for moment in MOMENTS:
        for name, array in checkpoint.moments.get(moment, {}).items():
            yield f"{moment}/{name}", _plain(array)
    for name, array in checkpoint.buffers.items():
        yield f"{_BUFFER_PREFIX}/{name}", _plain(array)


def _plain(array: np.ndarray) -> np.ndarray:
    """`array` C-ordered and in native byte order: safetensors copies raw memory, whatever its strides."""
    return np.asarray(array).astype(array.dtype.newbyteorder("="), order="C", copy=False)


def _decode(arrays: dict[str, np.ndarray], metadata: dict[str, str], state: dict[str, Any]) -> Checkpoint:
    """The inverse of `_encode`; raises ValueError or KeyError for what it cannot have written."""
    if metadata["sha256"] != _digest(arrays, {key: text for key, text in metadata.items() if key != "sha256"}):
        raise ValueError("its content is not what was written")
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
    steps = [_steps(metadata[key]) for key in ("step", "adam_steps")]
    tensors, ema = networks[_NETWORK_PREFIX], networks[_EMA_PREFIX]
    return Checkpoint(steps[0], tensors, plain, steps[1], state, ema, buffers)


def _steps(text: str) -> int:
    """A number of steps; raises ValueError for another text."""
    if not _STEPS.fullmatch(text) or int(text) > MOST_STEPS:
        raise ValueError("it counts no possible number of steps")
    return int(text)


def _check_format(path: Path, metadata: dict[str, str]) -> None:
    """Raises CheckpointError for a foreign file or a newer schema, ValueError for a schema that never was."""
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of this program: give a ckpt_*.safetensors file it wrote.")
    schema = int(metadata["schema"])
    if schema > SCHEMA:
        raise CheckpointError(
            f"{path} was written by a newer version of this program (schema {schema}, this one reads up to {SCHEMA}): "
            "update the program."
        )
    if schema < 1:
        raise ValueError(f"there never was a schema {schema}")


def _digest(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    """SHA-256 (hex) over names, types, shapes and bytes of `arrays` and over `metadata`, in sorted order."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for key in sorted(arrays):
        array = arrays[key]
        digest.update(json.dumps([key, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
