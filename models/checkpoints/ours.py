"""Checkpoints of this program: one safetensors file each, with JSON in its header and without pickle.

A file is written under a temporary name, synced and renamed, so `ckpt_*.safetensors` was complete when written; a
SHA-256 over its content detects later damage.
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

from data.errors import INVALID, UserError, reason
from data.io.files import make_folder, write_atomically
from models.checkpoints.state import check_moments, check_state, require_modest

FORMAT = "neus-jittor"
SCHEMA = 3  # increase it when older versions would misread newer files
EMA_SCHEMA = 2  # of a file without buffers, which older versions can read
PLAIN_SCHEMA = 1  # of a file without buffers and averaged weights, likewise
MOST_STEPS = 2**53  # a double represents all smaller integers
MOMENTS = ("exp_avg", "exp_avg_sq")  # the names of Adam's moments in the published checkpoints

# Header names: network/<network>/<name>, ema/<network>/<name>, buffer/<name> and <moment>/<network>.<name>.
_NETWORK_PREFIX, _EMA_PREFIX, _BUFFER_PREFIX = "network", "ema", "buffer"
# Exceptions of safetensors and json for damaged files.
_DAMAGE = (SafetensorError, EOFError, *INVALID)


class CheckpointError(UserError):
    """A checkpoint that cannot be written or read; the message names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """The complete state of a training, to continue it or to make results."""

    step: int  # optimiser steps taken
    tensors: dict[str, dict[str, np.ndarray]]  # network -> state-dict name -> array, as published
    moments: dict[str, dict[str, np.ndarray]]  # "exp_avg" / "exp_avg_sq" -> "<network>.<name>" -> array
    adam_steps: int  # steps counted by Adam's bias correction
    state: dict[str, Any] = field(default_factory=dict)  # JSON values only: str keys, lists (not tuples), any int
    ema: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # averaged weights, like `tensors`; or {}
    buffers: dict[str, np.ndarray] = field(default_factory=dict)  # further arrays of the model; or {}


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
    return step if 0 <= step <= MOST_STEPS else None


def encoded(checkpoint: Checkpoint) -> bytes:
    """The content of a checkpoint file."""
    arrays = dict(_flatten(checkpoint))
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
                yield f"{prefix}/{network}/{name}", _plain(array)
    for moment in MOMENTS:
        for name, array in checkpoint.moments.get(moment, {}).items():
            yield f"{moment}/{name}", _plain(array)
    for name, array in checkpoint.buffers.items():
        yield f"{_BUFFER_PREFIX}/{name}", _plain(array)


def _plain(array: np.ndarray) -> np.ndarray:
    """`array` C-ordered and in native byte order, since safetensors copies raw memory."""
    return np.asarray(array).astype(array.dtype.newbyteorder("="), order="C", copy=False)


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
    steps = [_steps(metadata[key]) for key in ("step", "adam_steps")]
    tensors, ema = networks[_NETWORK_PREFIX], networks[_EMA_PREFIX]
    return Checkpoint(steps[0], tensors, plain, steps[1], state, ema, buffers)


def _steps(text: str) -> int:
    """A number of steps; raises ValueError for another text."""
    if not re.fullmatch(r"[0-9]{1,16}", text) or int(text) > MOST_STEPS:
        raise ValueError("its number of steps is invalid")
    return int(text)


def _check_format(path: Path, metadata: dict[str, str]) -> None:
    """Raises CheckpointError for a foreign file or a newer schema, ValueError for an invalid schema."""
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of this program: give a ckpt_*.safetensors file it wrote.")
    schema = int(metadata["schema"])
    if schema > SCHEMA:
        raise CheckpointError(
            f"{path} was written by a newer version of this program (schema {schema}, this one reads up to {SCHEMA}): "
            "update the program."
        )
    if schema < 1:
        raise ValueError(f"its schema {schema} is invalid")


def digest_of(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    """SHA-256 (hex) over names, types, shapes and bytes of `arrays` and over `metadata`, in sorted order."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for key in sorted(arrays):
        array = arrays[key]
        digest.update(json.dumps([key, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
