"""Measure the time of a step on this machine in short trainings with the schedules of a long one."""

from __future__ import annotations

import time
from dataclasses import replace

from data.io.phases import phase
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.machine import memory
from models.methods.block import ModelConfig
from models.methods.registry import build_model, decide
from models.plan import SPHERE, Before, Decision
from models.training.chunks import settled_chunk, training_chunk
from models.training.trainer import Trainer, generators

# The first training compiles the kernels, the second one is timed.
FIRST_STEPS, TIMED_STEPS = 32, 160
UNSWEPT: Before = {"start": Decision(SPHERE)}  # no depth maps, which take longer than these trainings


def seconds_per_step(model: ModelConfig, train: TrainConfig, scene: Scene) -> float:
    """Seconds per step, averaged over a whole training; no files are kept.

    Schedules are fractions of the training, so a short one passes through the same sizes as a long one.
    """
    with phase("compiling"):
        _short_training(model, train, scene, FIRST_STEPS)
    with phase("measuring"):
        seconds = _short_training(model, train, scene, TIMED_STEPS)
    memory.release()
    return seconds / TIMED_STEPS


def _short_training(model: ModelConfig, train: TrainConfig, scene: Scene, steps: int) -> float:
    """The seconds of a training with this number of steps, without its start."""
    train = replace(train, end_iter=steps, warm_up_end=min(train.warm_up_end, steps - 1))
    initial, pixels, jitter = generators(train.seed)
    plan = decide(model, train, scene, UNSWEPT)
    built = build_model(model, train, initial, plan)
    trainer = Trainer(built, built.sampler(scene, train.batch_size, pixels), train, jitter)
    chunk = settled_chunk(train, {})
    trainer.ray_chunk = training_chunk(trainer).chunk if chunk is None else chunk
    started = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    trainer.settle()
    return time.perf_counter() - started
