"""Reject trainings and meshes that cannot fit into memory, from conf and flags, before anything is loaded or written.

All estimates are lower bounds, so nothing is rejected that would fit. What passes may still not fit: chunk sizes are
measured later, and a failed allocation is then reported in one sentence.
"""

from __future__ import annotations

from data.errors import UserError, listed
from models.conf import ExperimentConfig
from models.machine import jittor_import
from models.machine.available import FLOAT_BYTES, available_bytes
from models.methods.block import TRAINED_COPIES, ModelConfig

GB = 10**9
READ_COPIES = 3  # the same for rendering from a checkpoint, which contains the moments too
PIXEL_BYTES = 100  # per sampled pixel: coordinates, ray in both precisions, colour, mask
# Per column of the grid that a closed surface crosses twice: two vertices of 24 bytes and four triangles of 24, once in
# their blocks and once in the merged mesh. The grid itself is never stored as a whole.
MESH_BYTES = 2 * (2 * 24 + 4 * 24)


def require_networks(model: ModelConfig, is_trained: bool = True) -> None:
    """Raises UserError if the networks of the conf exceed the free main memory and, if a GPU is used, also its memory.

    The GPU is queried only if main memory does not suffice.
    """
    count = model.parameters
    needed, free = (TRAINED_COPIES if is_trained else READ_COPIES) * FLOAT_BYTES * count, available_bytes()
    if needed <= free or needed <= (gpu := jittor_import.gpu_bytes()):
        return
    raise UserError(
        f"the networks of the conf have {count} parameters and need {_gb(needed)} of memory, "
        f"{f'the GPU has {_gb(gpu)}' if gpu else f'{_gb(free)} is free'}: lower the widths and layers of "
        f"{listed([f'model.{name}' for name in model.network_blocks] or ['model'])}"
    )


def require_batch(conf: ExperimentConfig) -> None:
    """Raises UserError if the batch of one step exceeds the free memory for any chunk size."""
    count = conf.train.batch_size
    each = PIXEL_BYTES + FLOAT_BYTES * conf.model.ray_numbers
    needed, free = count * each, available_bytes()
    if needed > free:
        keys = f", or {', '.join(f'model.{key}' for key in conf.model.sizes)}" if conf.model.ray_numbers else ""
        raise UserError(
            f"train.batch_size = {count}: a step of that size needs {_gb(needed)} of memory, {_gb(free)} is free: "
            f"lower it{f' to {free // each}' if free > 2 * each else ''}{keys}"
        )


def require_mesh(resolution: int, name: str) -> None:
    """Raises UserError if a mesh exceeds the free memory; `name` is the flag or key, with its value."""
    needed, free = MESH_BYTES * resolution**2, available_bytes()
    if needed > free:
        raise UserError(
            f"{name}: a mesh on {resolution} points per side needs {_gb(needed)} of memory, {_gb(free)} is "
            f"free: at most {int((free / MESH_BYTES) ** 0.5)} points per side fit"
        )


def _gb(count: int) -> str:
    """Bytes as GB, with three digits."""
    return f"{count / GB:.3g} GB"
