"""Save skipped steps: one .npz per step with plain arrays and a JSON text, from which the step can be recomputed.

The size of the folder is bounded. A file that would exceed it omits the moments, then also the weights; the entries of
the update that were not finite are always included.
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
FORMATS = (FORMAT, "neus-jittor anomaly 1")  # readable formats; the first one has no moments
FOLDER_FILES = 3  # the first skipped steps are the most informative
FOLDER_BYTES = 50_000_000
MAX_MEMBER_BYTES = 2**28  # above any batch, and any layer of a network
NOT_OF_THE_BATCH = ("noise/", "weights/", "buffers/", "moments/", "readings", "meta_json")
# Parts that are omitted, in this order, if a file would be too large.
SPARED = ((), ("the moments",), ("the moments", "the weights"))
_DAMAGE = (
    NpzError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
)  # not an npz of this program, or damaged


@dataclass(frozen=True)
class Anomaly:
    """A skipped step as it was saved."""

    step: int  # finished steps before it
    batch: dict[str, np.ndarray]  # `Batch.arrays` of the batch
    noise: dict[str, np.ndarray] | None
    weights: dict[str, np.ndarray]  # "<network>.<name>" -> values; {} if omitted
    conf: str  # HOCON with all keys
    findings: tuple[str, ...]  # what was not finite
    states: dict[str, Any]  # of the random generators when the step was skipped
    buffers: dict[str, np.ndarray]  # `Model.buffers`
    moments: dict[str, dict[str, np.ndarray]]  # moment -> "<network>.<name>" -> values; {} if omitted
    settings: UpdateSettings | None  # None in files of the first format
    faults: tuple[UpdateFault, ...]


@dataclass(frozen=True)
class Saved:
    """The result of saving a skipped step."""

    path: Path | None  # None if the folder is full
    left_out: tuple[str, ...] = ()  # the omitted parts


class _FullError(Exception):
    """The file would exceed the available size."""


class _Bounded(io.BytesIO):
    """A memory buffer that raises _FullError once it would exceed `most` bytes, to stop compression early.

    What is written afterwards is discarded: the archive writes its end even when it is deleted.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._is_full = most, False

    def write(self, content: Any) -> int:
        """As `io.BytesIO`; raises _FullError."""
        size = memoryview(content).nbytes
        if self._is_full:
            return size
        if self.tell() + size > self._most:
            self._is_full = True
            raise _FullError
        return super().write(content)


def anomaly_name(step: int) -> str:
    """The file name for the step after `step` finished ones."""
    return f"step_{step + 1:08d}.npz"


def save_anomaly(folder: Path, bad: BadStep, conf: str, states: dict[str, Any]) -> Saved:
    """Save a skipped step in `folder`, which is created if needed, within the size limit.

    Nothing is written if the folder already has FOLDER_FILES files. Raises UserError if the file cannot be written.
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
    """The saved steps in a folder, including those of earlier runs."""
    return (path for path in folder.glob("step_*.npz") if path.is_file())


def _encoded(bad: BadStep, conf: str, states: dict[str, Any], left_out: tuple[str, ...], most: int) -> bytes | None:
    """The content of a file without some parts; None if it exceeds `most` bytes."""
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
    """Read a file of `save_anomaly`; raises UserError if it is missing, damaged or of another type."""
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
    """The inverse of `_encoded`; raises ValueError, KeyError or TypeError for invalid content."""
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
    """Raises ValueError if the texts, the step or the weights have the wrong type."""
    if type(meta["step"]) is not int or not 0 <= meta["step"] <= MOST_STEPS:
        raise ValueError("its number of steps is invalid")
    if type(meta["conf"]) is not str or type(meta["states"]) is not dict or type(meta["findings"]) is not list:
        raise ValueError("its conf, states or findings have the wrong type")
    if not all(type(finding) is str for finding in meta["findings"]):
        raise ValueError("its findings are not strings")
    if not all(values.dtype == np.float32 for values in weights.values()):
        raise ValueError("its weights are not float32 arrays")


def _require_moments(moments: Mapping[str, Mapping[str, np.ndarray]], weights: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError if only some weights have moments."""
    shapes = {name: (values.shape, values.dtype) for name, values in weights.items()}
    found = [{name: (values.shape, values.dtype) for name, values in named.items()} for named in moments.values()]
    if found and found != [shapes, shapes]:
        raise ValueError("its moments do not match its weights")


def _settings(values: Any) -> UpdateSettings | None:
    """The scalars of the optimiser; raises ValueError or TypeError if they are invalid."""
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
    examples = {name: getattr(fault.examples, name).tolist() for name in INPUTS}
    return {**vars(fault), "places": fault.places.tolist(), "examples": examples, "ranges": dict(fault.ranges)}


def _fault_of_json(values: dict[str, Any]) -> UpdateFault:
    """The inverse; raises ValueError, KeyError or TypeError for invalid content."""
    examples = Entries(*(np.array(values["examples"][name], np.float32) for name in INPUTS))
    places = np.array(values["places"], np.int64)
    ranges = {name: (float(low), float(high)) for name, (low, high) in values["ranges"].items()}
    fault = UpdateFault(**{**values, "places": places, "examples": examples, "ranges": ranges})
    shapes = {places.shape, *(getattr(examples, name).shape for name in INPUTS)}
    if type(fault.name) is not str or type(fault.count) is not int or shapes != {(len(places),)}:
        raise ValueError("its examples have the wrong type")
    return fault
