"""Measure the time of a step on this machine in short trainings with the schedules of a long one."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from data.io.bars import shown
from data.io.clock import phase, scheduled, slowdown
from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.machine import memory
from models.methods.block import ModelConfig
from models.methods.registry import build_model
from models.plan import TrainingPlan
from models.training.chunks import chosen_chunk
from models.training.trainer import Trainer, generators

# The first training compiles the kernels, the second one is timed, with at most this many steps.
FIRST_STEPS, TIMED_STEPS = 32, 160


@dataclass(frozen=True)
class Pace:
    """The speed of a training on this machine now."""

    seconds: float  # per step, averaged over a whole training
    slowdown: float = 1.0  # of work on one core by other processes


def measured_pace(model: ModelConfig, train: TrainConfig, scene: Scene, plan: TrainingPlan, within: float) -> Pace:
    """The times of steps of the planned training, measured in about `within` seconds or in FIRST_STEPS steps; no files
    are kept.

    Schedules are fractions of the training, so a short one passes through the same sizes as a long one.
    """
    with phase("compiling"):
        first = _short_training(model, train, scene, plan, FIRST_STEPS, "first steps") / FIRST_STEPS
    before, steps = scheduled(), int(np.clip(within / first, FIRST_STEPS, TIMED_STEPS))
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
    for _ in shown(range(steps), name):
        trainer.step()
    trainer.settle()
    return time.perf_counter() - started
