"""What cannot fit into memory, foreseen from the conf and the flags before anything is loaded or written.

Each figure is the least that the work takes: what is refused could not have been done. What fits by these figures may
still not fit; the chunks are measured later, and an allocation that fails is one sentence then.
"""

from __future__ import annotations

from data.errors import UserError
from models.machine import backend
from models.machine.available import available_bytes
from models.methods.block import ModelConfig
from models.methods.conf import ExperimentConfig

FLOAT_BYTES = 4
GB = 10**9
# A parameter with its gradient, its two moments, and the new weight and moments that a step makes.
TRAINED_COPIES = 7
READ_COPIES = 3  # likewise where a checkpoint is only rendered: it holds the moments too
PIXEL_BYTES = 100  # of a drawn pixel: coordinates, ray in both precisions, colour, mask
# Of a mesh, for each column of its grid that it crosses twice, as a closed surface does: two vertices of 24 bytes and
# four triangles of 24, once in their blocks and once as one mesh. The grid itself is never held whole.
MESH_BYTES = 2 * (2 * 24 + 4 * 24)


def require_networks(model: ModelConfig, is_trained: bool = True) -> None:
    """Raises UserError where the networks of the conf exceed main memory, and the card where one will hold them.

    The card is asked for only where main memory does not do.
    """
    count = model.parameters
    needed, free = (TRAINED_COPIES if is_trained else READ_COPIES) * FLOAT_BYTES * count, available_bytes()
    if needed <= free or needed <= (card := backend.card_bytes()):
        return
    raise UserError(
        f"the networks of the conf have {count} parameters and need {_gb(needed)} of memory, "
        f"{f'the card has {_gb(card)}' if card else f'{_gb(free)} is free'}: lower the widths and layers of "
        f"{_network_keys(model)}"
    )


def require_batch(conf: ExperimentConfig) -> None:
    """Raises UserError where the batch of one step exceeds what is free, in however small parts it is computed."""
    count = conf.train.batch_size
    each = PIXEL_BYTES + FLOAT_BYTES * conf.model.ray_numbers
    needed, free = count * each, available_bytes()
    if needed > free:
        keys = f", or {conf.model.memory_keys}" if conf.model.memory_keys else ""
        raise UserError(
            f"train.batch_size = {count}: a step of that size needs {_gb(needed)} of memory, {_gb(free)} is free: "
            f"lower it{f' to {free // each}' if free > 2 * each else ''}{keys}"
        )


def require_mesh(resolution: int, name: str) -> None:
    """Raises UserError where a mesh exceeds what is free; `name` is the flag or key, with its value."""
    needed, free = MESH_BYTES * resolution**2, available_bytes()
    if needed > free:
        raise UserError(
            f"{name}: a mesh on {resolution} points per side needs {_gb(needed)} of memory, {_gb(free)} is "
            f"free: at most {int((free / MESH_BYTES) ** 0.5)} points per side fit"
        )


def _network_keys(model: ModelConfig) -> str:
    """The blocks that a too large number may stand in."""
    *others, last = [f"model.{name}" for name in model.network_blocks] or ["model"]
    return f"{', '.join(others)} and {last}" if others else last


def _gb(count: int) -> str:
    """Bytes as GB, so that small and gigantic figures read well."""
    return f"{count / GB:.3g} GB"
