"""A model at a step as a file: weights (averaged ones, if there are any) and buffers."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from data.io.files import write_result
from models.fields.state import export_state
from models.methods.protocol import Model
from models.training.trainer import load_into

NETWORK, BUFFER = "network", "buffer"  # first parts of the names in the file


def save(path: Path, model: Model) -> None:
    """Write the file; raises UserError if that fails."""
    arrays = {
        f"{NETWORK}/{name}/{key}": array
        for name, network in model.networks.items()
        for key, array in export_state(network).items()
    }
    content = io.BytesIO()
    np.savez(content, **arrays, **{f"{BUFFER}/{name}": array for name, array in model.buffers().items()})
    write_result(path, content.getvalue())


def load(path: Path, model: Model) -> None:
    """Load the file into `model`, built from the same conf; raises ValueError if it does not fit."""
    tensors: dict[str, dict[str, np.ndarray]] = {}
    buffers = {}
    with np.load(path) as file:
        for entry in file.files:
            kind, _, name = entry.partition("/")
            if kind == BUFFER:
                buffers[name] = file[entry]
            else:
                network, _, key = name.partition("/")
                tensors.setdefault(network, {})[key] = file[entry]
    load_into(model, tensors, buffers)
