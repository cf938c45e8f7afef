"""How many entries of a batch are differentiated at a time: what the conf says or, under `auto`, what fits.

The largest chunk that fits `train.memory_limit` by measurements on the run's own model (models.machine.memory).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from models.config.blocks import TrainConfig
from models.config.strict import AUTO
from models.machine import memory
from models.training.sharing import share_of
from models.training.trainer import Trainer

FLOAT_BYTES = 4
# Per parameter while it is updated: the gradient, two new moments and the new weight, beside the old ones.
UPDATE_COPIES = 4
STATE_KEY = "ray_chunk"  # in the state of a checkpoint
RANKS_KEY = "ranks"  # that shared the batches, where there were several


def training_chunk(trainer: Trainer) -> memory.Choice:
    """The entries of a batch that are differentiated at a time under `auto`; leaves the trainer as it was."""
    state = trainer.sampler.state()
    # Any jitter does, and none may be drawn from the run's generator.
    share = share_of(trainer.model, trainer.sampler.next(), None, trainer.ranks, trainer.cut)
    trainer.sampler.restore(state)
    update = UPDATE_COPIES * FLOAT_BYTES * sum(parameter.numel() for parameter in trainer.optimizer.parameters)

    def differentiate(chunk: int) -> object:
        part = share.batch.part(0, 2 * chunk)  # two chunks tell whether the first one's memory serves the second
        noise = trainer.model.draw_noise(len(part), np.random.default_rng(0))
        return trainer.gradient_of(part, noise, chunk)

    choice = memory.chunk_that_fits(share.longest, differentiate, trainer.conf.memory_limit, update)
    # What fits in one piece stays in one where another batch, or rank, has more entries: it has no more samples.
    if choice.chunk == share.longest:
        choice = replace(choice, chunk=trainer.conf.batch_size)
    # All ranks go on with what fits each.
    return min(trainer.ranks.everyone(choice), key=lambda one: one.chunk)


def settled_chunk(conf: TrainConfig, state: Mapping[str, Any], ranks: int = 1) -> int | None:
    """The chunk that needs no measurement: the conf's, or the one a checkpoint of the same sizes went on with.

    A resumed run of as many ranks keeps its chunk, so that it repeats the unbroken run bit for bit.
    """
    if conf.ray_chunk != AUTO:
        return min(int(conf.ray_chunk), conf.batch_size)
    kept = state.get(STATE_KEY)
    is_same = isinstance(kept, dict) and kept.get("for") == _sizes(conf) and state.get(RANKS_KEY, 1) == ranks
    return int(kept["rays"]) if is_same else None


def chunk_state(conf: TrainConfig, chunk: int, ranks: int = 1) -> dict[str, Any]:
    """What `settled_chunk` reads back from a checkpoint's state."""
    return {STATE_KEY: {"rays": chunk, "for": _sizes(conf)}} | ({RANKS_KEY: ranks} if ranks > 1 else {})


def _sizes(conf: TrainConfig) -> list[Any]:
    """What a chunk was chosen for, as JSON."""
    return [conf.batch_size, conf.memory_limit]
