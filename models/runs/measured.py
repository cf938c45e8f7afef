"""What is measured on this machine before a training: the chunk size, and the time of a step.

The chunk size is the number of batch entries that are differentiated at a time: from the conf, or under `auto` the
largest one that fits `train.memory_limit`, by measurements on the model (models.machine.memory).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from data.io.bars import progress
from data.io.clock import phase, scheduled, slowdown
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.config.strict import AUTO
from models.machine import memory
from models.machine.available import FLOAT_BYTES
from models.machine.backend import jt
from models.methods.block import ModelConfig
from models.methods.registry import build_model
from models.ops.together import compile_together
from models.ops.update import Update, readings
from models.plan import TrainingPlan
from models.structs import Var
from models.training.gradient import TOTAL, losses_of
from models.training.optimizer import updated
from models.training.trainer import Trainer, generators

# Bytes per parameter during an update: the gradient, two new moments and the new weight, in addition to the old values.
UPDATE_COPIES = 4
CHUNK_KEY = "ray_chunk"  # key in the state of a checkpoint
PARTS_KEY = "ranks"  # number of processes that shared the batches
# The first training compiles the kernels, the second one is timed, with at most this many steps.
COMPILED_STEPS, MOST_TIMED_STEPS = 32, 160


@phase("compiling")
def compile_step(trainer: Trainer) -> int:
    """Compile the operations of this step and of the last one, which may have further losses, together; returns their
    number. Leaves the trainer unchanged.
    """
    optimizer, states = trainer.optimizer, trainer.random_states()

    def build() -> list[Var]:
        batch = trainer.sampler.next()
        noise = trainer.model.draw_noise(len(batch), np.random.default_rng(0))
        wanted = list[Var]()
        for step in {trainer.finished_steps, trainer.conf.end_iter - 1}:
            objective = trainer.model.objective(batch, noise, step)
            losses = losses_of(objective, {})
            gradients = [value.stop_grad() for value in jt.grad(losses[TOTAL], optimizer.parameters)]
            wanted += [*gradients, *losses.values(), *objective.output.values()]
        seen, is_finite = readings(losses[TOTAL], gradients, optimizer.parameters)
        before = Update(optimizer.parameters, optimizer.exp_avg, optimizer.exp_avg_sq, is_finite)
        rates, settings = [0.0] * len(gradients), replace(optimizer.settings, steps=1)
        after = updated(before, gradients, rates, settings)
        update = [*after.parameters, *after.exp_avg, *after.exp_avg_sq, after.taken, *seen]
        return [*update, *wanted]

    count = compile_together(build, partial(progress, name="compiling"))
    trainer.set_random_states(states)
    return count


@phase("compiling")  # at its first steps
def training_chunk(trainer: Trainer) -> memory.Choice:
    """The chunk size under `auto`; leaves the trainer unchanged."""
    state = trainer.sampler.state()
    # Any jitter works, and none may be drawn from the generator of the run.
    batch = trainer.sampler.next()
    trainer.sampler.restore(state)
    most = -(-len(batch) // trainer.parts)
    update = UPDATE_COPIES * FLOAT_BYTES * sum(parameter.numel() for parameter in trainer.optimizer.parameters)

    def differentiate(chunk: int) -> object:
        part = batch.part(0, 2 * chunk)  # two chunks show whether the memory of the first one is reused
        noise = trainer.model.draw_noise(len(part), np.random.default_rng(0))
        return trainer.gradient_of(part, noise, chunk)

    choice = memory.chunk_that_fits(most, differentiate, trainer.conf.memory_limit, update)
    # If one batch fits, all do: other batches with more entries have no more samples. Only losses at the surface
    # (patches, curvature) evaluate some points per ray: 10 MB more for ten times the rays.
    return replace(choice, chunk=trainer.conf.batch_size) if choice.chunk == most else choice


def known_chunk(conf: TrainConfig, state: Mapping[str, Any], parts: int = 1) -> int | None:
    """The chunk size without measurement: from the conf, or from a checkpoint with the same sizes; else None.

    A resumed run with the same number of processes, which have `parts` of a batch, keeps its chunk size, so that it is
    bit-identical to an uninterrupted one.
    """
    if conf.ray_chunk != AUTO:
        return min(int(conf.ray_chunk), conf.batch_size)
    saved = state.get(CHUNK_KEY)
    if isinstance(saved, dict) and saved.get("for") == _sizes(conf) and state.get(PARTS_KEY, 1) == parts:
        return int(saved["rays"])
    return None


def chosen_chunk(trainer: Trainer, state: Mapping[str, Any]) -> memory.Choice:
    """The known chunk size, given the state of a checkpoint or {}; else that of `training_chunk`."""
    if trainer.parts == 1:  # several processes compile for each other
        compile_step(trainer)
    known = known_chunk(trainer.conf, state, trainer.parts)
    return training_chunk(trainer) if known is None else memory.Choice(known, 0, True)


def chunk_state(conf: TrainConfig, chunk: int, parts: int = 1) -> dict[str, Any]:
    """The entry of a checkpoint's state that `known_chunk` reads."""
    return {CHUNK_KEY: {"rays": chunk, "for": _sizes(conf)}} | ({PARTS_KEY: parts} if parts > 1 else {})


def _sizes(conf: TrainConfig) -> list[Any]:
    """The sizes that determine the chunk size, as JSON."""
    return [conf.batch_size, conf.memory_limit]


@dataclass(frozen=True)
class Pace:
    """The speed of a training on this machine now."""

    seconds: float  # per step, averaged over a whole training
    slowdown: float = 1.0  # of work on one core by other processes


def measured_pace(model: ModelConfig, train: TrainConfig, scene: Scene, plan: TrainingPlan, within: float) -> Pace:
    """The times of steps of the planned training, measured in about `within` seconds or in COMPILED_STEPS steps; no
    files are kept.

    Schedules are fractions of the training, so a short one passes through the same sizes as a long one.
    """
    with phase("compiling"):
        first = _short_training(model, train, scene, plan, COMPILED_STEPS, "first steps") / COMPILED_STEPS
    before, steps = scheduled(), int(np.clip(within / first, COMPILED_STEPS, MOST_TIMED_STEPS))
    with phase("measuring"):
        seconds = _short_training(model, train, scene, plan, steps, "measuring") / steps
    memory.release()
    return Pace(seconds, slowdown(before))


def _short_training(
    model: ModelConfig, train: TrainConfig, scene: Scene, plan: TrainingPlan, steps: int, name: str
) -> float:
    """The seconds of a training with this number of steps, without its start."""
    train = replace(train, end_iter=steps, warm_up_end=min(train.warm_up_end, steps - 1))
    initial, pixels, jitter = generators(train.seed)
    built = build_model(model, train, initial, plan)
    trainer = Trainer(built, built.sampler(scene, train.batch_size, pixels), train, jitter)
    trainer.ray_chunk = chosen_chunk(trainer, {}).chunk
    started = time.perf_counter()
    for _ in progress(range(steps), name):
        trainer.step()
    trainer.finish_step()
    return time.perf_counter() - started
