"""Refused steps on disk: an .npz each, plain arrays and one JSON text, from which the step can be computed again."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UserError, reason
from data.io.files import write_result
from data.io.npz import NpzError, read_members
from models.checkpoints.ours import MOST_STEPS
from models.training.guard import BadStep

FORMAT = "neus-jittor anomaly 1"
MAX_MEMBER_BYTES = 2**28  # far above any batch, or layer of a network
NOT_OF_THE_BATCH = ("noise/", "weights/", "buffers/", "readings", "meta_json")
_DAMAGE = (NpzError, ValueError, KeyError, TypeError)  # no npz of ours, or one with other contents


@dataclass(frozen=True)
class Anomaly:
    """A refused step as it was saved."""

    step: int  # finished steps before it
    batch: dict[str, np.ndarray]  # `Batch.arrays` of what it was computed from
    noise: dict[str, np.ndarray] | None
    weights: dict[str, np.ndarray]  # "<network>.<name>" -> values
    conf: str  # HOCON, every key spelt out
    findings: tuple[str, ...]  # what was not finite
    states: dict[str, Any]  # of the random generators when the step was refused
    buffers: dict[str, np.ndarray]  # `Model.buffers`


def anomaly_name(step: int) -> str:
    """The file name for the step after `step` finished ones."""
    return f"step_{step + 1:08d}.npz"


def save_anomaly(folder: Path, bad: BadStep, conf: str, states: dict[str, Any]) -> Path:
    """Write a refused step into `folder` (made if need be); raises UserError where the disk does not take it."""
    batch, noise = bad.inputs.batch, bad.inputs.noise
    arrays = batch.arrays() | {"readings": bad.readings}
    arrays |= {} if noise is None else {f"noise/{name}": array for name, array in noise.items()}
    arrays |= {f"weights/{name}": values for name, values in bad.weights.items()}
    arrays |= {f"buffers/{name}": values for name, values in bad.buffers.items()}
    meta = {"format": FORMAT, "step": bad.inputs.step, "conf": conf, "findings": bad.findings, "states": states}
    buffer = io.BytesIO()
    np.savez(buffer, meta_json=np.array(json.dumps(meta)), **arrays)
    path = folder / anomaly_name(bad.inputs.step)
    write_result(path, buffer.getvalue())
    return path


def load_anomaly(path: Path) -> Anomaly:
    """Read what `save_anomaly` wrote; raises UserError for a file that is missing, damaged or something else."""
    try:
        return _decode(read_members(path, None, MAX_MEMBER_BYTES))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); give a file from anomalies/") from error
    except _DAMAGE as error:
        raise UserError(
            f"{path}: is damaged, or no step this program refused ({reason(error)}); give a file from anomalies/"
        ) from error


def _decode(arrays: dict[str, np.ndarray]) -> Anomaly:
    """The inverse of `save_anomaly`; raises ValueError, KeyError or TypeError for what it cannot have written."""
    meta = json.loads(str(arrays["meta_json"]))
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError("it says so itself")

    def below(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    batch = {name: array for name, array in arrays.items() if not name.startswith(NOT_OF_THE_BATCH)}
    weights = below("weights/")
    _require_kinds(meta, weights)
    noise, buffers, findings = below("noise/") or None, below("buffers/"), tuple(meta["findings"])
    return Anomaly(meta["step"], batch, noise, weights, meta["conf"], findings, meta["states"], buffers)


def _require_kinds(meta: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    """Raises ValueError where the texts, the step or the weights are of another kind than those that are written."""
    if type(meta["step"]) is not int or not 0 <= meta["step"] <= MOST_STEPS:
        raise ValueError("it counts no possible number of steps")
    if type(meta["conf"]) is not str or type(meta["states"]) is not dict or type(meta["findings"]) is not list:
        raise ValueError("its conf, its states or its findings are of another kind")
    if not all(type(finding) is str for finding in meta["findings"]):
        raise ValueError("its findings are no texts")
    if not all(values.dtype == np.float32 for values in weights.values()):
        raise ValueError("its weights are no float32 numbers")
