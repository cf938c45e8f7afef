"""Skipped steps on disk: an .npz each, plain arrays and one JSON text, from which the step can be computed again.

A folder of them has a size that is never exceeded. Where a file does not fit it does without the moments, then
without the weights too; the entries of the update that were not finite are always in it.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UserError, reason
from data.io.files import write_result
from data.io.npz import NpzError, read_members
from models.checkpoints.ours import MOMENTS, MOST_STEPS
from models.config.optimizers import OPTIMIZERS, UpdateSettings
from models.training.guard import BadStep
from models.training.update_check import INPUTS, Entries, UpdateFault

FORMAT = "neus-jittor anomaly 2"
FORMATS = (FORMAT, "neus-jittor anomaly 1")  # that can be read; the first one had no moments
FOLDER_FILES = 3  # the first ones tell the most
FOLDER_BYTES = 50_000_000
MAX_MEMBER_BYTES = 2**28  # far above any batch, or layer of a network
NOT_OF_THE_BATCH = ("noise/", "weights/", "buffers/", "moments/", "readings", "meta_json")
# What a file does without, in this order, where it does not fit.
SPARED = ((), ("the moments",), ("the moments", "the weights"))
_DAMAGE = (
    NpzError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
)  # no npz of ours, or one with other contents


@dataclass(frozen=True)
class Anomaly:
    """A skipped step as it was saved."""

    step: int  # finished steps before it
    batch: dict[str, np.ndarray]  # `Batch.arrays` of what it was computed from
    noise: dict[str, np.ndarray] | None
    weights: dict[str, np.ndarray]  # "<network>.<name>" -> values; {} where they did not fit
    conf: str  # HOCON, every key spelt out
    findings: tuple[str, ...]  # what was not finite
    states: dict[str, Any]  # of the random generators when the step was skipped
    buffers: dict[str, np.ndarray]  # `Model.buffers`
    moments: dict[str, dict[str, np.ndarray]]  # moment -> "<network>.<name>" -> values; {} where there are none
    settings: UpdateSettings | None  # None in files of the first format
    faults: tuple[UpdateFault, ...]


@dataclass(frozen=True)
class Saved:
    """What became of a skipped step."""

    path: Path | None  # None where the folder has no room
    left_out: tuple[str, ...] = ()  # what the file does without


class _FullError(Exception):
    """More bytes than there is room for."""


class _Bounded(io.BytesIO):
    """Bytes in memory; raises _FullError beyond `most`, so that nothing large is compressed in vain."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, content: Any) -> int:
        """As `io.BytesIO`."""
        if self.tell() + memoryview(content).nbytes > self._most:
            raise _FullError
        return super().write(content)


def anomaly_name(step: int) -> str:
    """The file name for the step after `step` finished ones."""
    return f"step_{step + 1:08d}.npz"


def save_anomaly(folder: Path, bad: BadStep, conf: str, states: dict[str, Any]) -> Saved:
    """Write a skipped step into `folder` (made if need be), as far as there is room.

    Nothing is written where the folder has FOLDER_FILES already, a file of this step among them or not. Raises
    UserError where the disk does not take it.
    """
    path, kept = folder / anomaly_name(bad.inputs.step), [file.stat().st_size for file in _files(folder)]
    if len(kept) >= FOLDER_FILES or path.exists():
        return Saved(None)
    for left_out in SPARED:
        content = _encoded(bad, conf, states, left_out, FOLDER_BYTES - sum(kept))
        if content is not None:
            write_result(path, content)
            return Saved(path, left_out)
    return Saved(None)


def _files(folder: Path) -> Iterator[Path]:
    """The skipped steps in a folder, of earlier runs too."""
    return (path for path in folder.glob("step_*.npz") if path.is_file())


def _encoded(bad: BadStep, conf: str, states: dict[str, Any], left_out: tuple[str, ...], most: int) -> bytes | None:
    """The content of a file without some parts; None where it has more than `most` bytes."""
    batch, noise = bad.inputs.batch, bad.inputs.noise
    arrays = batch.arrays() | {"readings": bad.readings}
    arrays |= {} if noise is None else {f"noise/{name}": array for name, array in noise.items()}
    if "the weights" not in left_out:
        arrays |= {f"weights/{name}": values for name, values in bad.weights.items()}
        arrays |= {f"buffers/{name}": values for name, values in bad.buffers.items()}
    if "the moments" not in left_out:
        moments = ((moment, *entry) for moment, named in bad.moments.items() for entry in named.items())
        arrays |= {f"moments/{moment}/{name}": values for moment, name, values in moments}
    meta = {"format": FORMAT, "step": bad.inputs.step, "conf": conf, "findings": bad.findings, "states": states}
    meta |= {"adam": None if bad.settings is None else asdict(bad.settings)}
    meta |= {"faults": [_fault_as_json(fault) for fault in bad.faults]}
    buffer = _Bounded(most)
    try:
        np.savez_compressed(buffer, meta_json=np.array(json.dumps(meta)), **arrays)
    except _FullError:
        return None
    return buffer.getvalue()


def load_anomaly(path: Path) -> Anomaly:
    """Read what `save_anomaly` wrote; raises UserError for a file that is missing, damaged or something else."""
    try:
        return _decode(read_members(path, None, MAX_MEMBER_BYTES))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); give a file from anomalies/") from error
    except _DAMAGE as error:
        raise UserError(
            f"{path}: is damaged, or is not a step that this program skipped ({reason(error)}); give a file "
            "from anomalies/"
        ) from error


def _decode(arrays: dict[str, np.ndarray]) -> Anomaly:
    """The inverse of `_encoded`; raises ValueError, KeyError or TypeError for what it cannot have written."""
    meta = json.loads(str(arrays["meta_json"]))
    if not isinstance(meta, dict) or meta.get("format") not in FORMATS:
        raise ValueError("its format is unknown")

    def below(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    batch = {name: array for name, array in arrays.items() if not name.startswith(NOT_OF_THE_BATCH)}
    weights = below("weights/")
    moments = {moment: found for moment in MOMENTS if (found := below(f"moments/{moment}/"))}
    _require_kinds(meta, weights)
    _require_moments(moments, weights)
    return Anomaly(
        step=meta["step"],
        batch=batch,
        noise=below("noise/") or None,
        weights=weights,
        conf=meta["conf"],
        findings=tuple(meta["findings"]),
        states=meta["states"],
        buffers=below("buffers/"),
        moments=moments,
        settings=_settings(meta.get("adam")),
        faults=tuple(_fault_of_json(fault) for fault in meta.get("faults", ())),
    )


def _require_kinds(meta: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    """Raises ValueError where the texts, the step or the weights are of another kind than those that are written."""
    if type(meta["step"]) is not int or not 0 <= meta["step"] <= MOST_STEPS:
        raise ValueError("its number of steps is invalid")
    if type(meta["conf"]) is not str or type(meta["states"]) is not dict or type(meta["findings"]) is not list:
        raise ValueError("its conf, states or findings have the wrong type")
    if not all(type(finding) is str for finding in meta["findings"]):
        raise ValueError("its findings are not texts")
    if not all(values.dtype == np.float32 for values in weights.values()):
        raise ValueError("its weights are not float32 arrays")


def _require_moments(moments: Mapping[str, Mapping[str, np.ndarray]], weights: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError where there are moments, and not both of every weight."""
    shapes = {name: (values.shape, values.dtype) for name, values in weights.items()}
    found = [{name: (values.shape, values.dtype) for name, values in named.items()} for named in moments.values()]
    if found and found != [shapes, shapes]:
        raise ValueError("its moments do not match its weights")


def _settings(values: Any) -> UpdateSettings | None:
    """The optimiser's numbers; raises ValueError or TypeError where they cannot be a step's."""
    if values is None:
        return None
    found = UpdateSettings(**values)
    numbers = [found.learning_rate, found.beta_2, found.epsilon, *found.factors.values()]
    are_numbers = all(type(number) in (int, float) and math.isfinite(number) for number in numbers)
    is_step = type(found.steps) is int and 1 <= found.steps <= MOST_STEPS
    if not are_numbers or not is_step or not 0 <= found.beta_2 < 1 or found.optimizer not in OPTIMIZERS:
        raise ValueError("its optimiser scalars are not numbers")
    return found


def _fault_as_json(fault: UpdateFault) -> dict[str, Any]:
    """Plain numbers and lists."""
    examples = {name: getattr(fault.examples, name).tolist() for name in INPUTS}
    return {**vars(fault), "places": fault.places.tolist(), "examples": examples, "ranges": dict(fault.ranges)}


def _fault_of_json(values: dict[str, Any]) -> UpdateFault:
    """The inverse; raises ValueError, KeyError or TypeError for what it cannot have written."""
    examples = Entries(*(np.array(values["examples"][name], np.float32) for name in INPUTS))
    places = np.array(values["places"], np.int64)
    ranges = {name: (float(low), float(high)) for name, (low, high) in values["ranges"].items()}
    fault = UpdateFault(**{**values, "places": places, "examples": examples, "ranges": ranges})
    shapes = {places.shape, *(getattr(examples, name).shape for name in INPUTS)}
    if type(fault.name) is not str or type(fault.count) is not int or shapes != {(len(places),)}:
        raise ValueError("its examples have the wrong type")
    return fault
