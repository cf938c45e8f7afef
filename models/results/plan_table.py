"""`--mode plan`: memory and speed measured on this machine, over n_importance if the model type has it.

Only a few steps are trained, and nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data.scenes.scene import Scene
from models.checkpoints.scenes import measured
from models.conf import MORE, ExperimentConfig
from models.config.strict import ConfigError, check_limits
from models.machine import backend, memory
from models.machine.backend import jt
from models.methods.block import ModelConfig
from models.methods.registry import build_model, decide
from models.plan import UNSWEPT
from models.results.context import ResultChunks
from models.results.image_metrics import picture_level
from models.runs.measured import chosen_chunk
from models.training.trainer import Trainer

IMPORTANCES = (0, 16, 32, 48, 64, 96, 128)
TIMED_STEPS = 3
IMPORTANCE, COLUMNS = "n_importance", ("ray_chunk", "step GB", "render_chunk", "image GB")
COLUMN_WIDTH = 13  # of a column: the longest heading and a space


@dataclass(frozen=True)
class PlanRow:
    """Memory and speed of one n_importance."""

    n_importance: int | None  # None if the model type has no such number
    ray_chunk: int  # rays per chunk of a training step
    step_bytes: int  # peak of the process (CPU) or of Jittor's pool (CUDA) during a training step
    render_chunk: int  # rays per chunk of an image
    image_bytes: int  # likewise, during a validation image
    per_second: float  # entries of training batches
    entries: str  # the name of the entries, such as rays
    fits: bool  # False: exceeds the limit even with one ray per chunk


def importance(conf: ModelConfig) -> int | None:
    """The conf's n_importance; None if the method has no such number."""
    name = _sampled_block(conf)
    return conf.block(name).n_importance if name else None


def _sampled_block(conf: ModelConfig) -> str:
    """The block with the key n_importance; "" if the method has none."""
    return next((block for block, _, key in (size.partition(".") for size in conf.sizes) if key == IMPORTANCE), "")


def variants(conf: ModelConfig) -> Iterator[ModelConfig]:
    """The conf with ascending values of n_importance, the fixed ones and its own, as far as they are allowed."""
    name, own = _sampled_block(conf), importance(conf)
    if own is None:
        yield conf
        return
    for count in sorted({*IMPORTANCES, own}):
        changed: Any = {name: replace(conf.block(name), n_importance=count)}
        if not hasattr(conf, name):
            changed = {MORE: {**vars(conf)[MORE], **changed}}
        with suppress(ConfigError):
            check_limits(variant := replace(conf, **changed))
            variant.check()
            yield variant


def plan(conf: ExperimentConfig, scene: Scene) -> Iterator[PlanRow]:
    """Measure the rows, with the networks of the conf at their initial weights."""
    for wanted in variants(conf.model):
        yield measure(conf, scene, wanted)
        memory.release()


def measure(conf: ExperimentConfig, scene: Scene, wanted: ModelConfig) -> PlanRow:
    """Measure one row: a few steps and one chunk of an image."""
    plan = decide(wanted, conf.train, measured(scene), UNSWEPT)
    model = build_model(wanted, conf.train, np.random.default_rng(conf.train.seed), plan)
    pixels, jitter = (np.random.default_rng(conf.train.seed) for _ in range(2))
    trainer = Trainer(model, model.sampler(scene, conf.train.batch_size, pixels), conf.train, jitter)
    choice = chosen_chunk(trainer, {})
    trainer.ray_chunk = choice.chunk
    step_peak, base = memory.growth(trainer.step), memory.held_bytes()
    rays, _ = scene.rays(0, picture_level(scene, 0, conf.train.validate_resolution_level))
    chunk = ResultChunks(conf.train).rays(model, rays)
    first = rays.at(slice(chunk))  # the other chunks take no more memory
    seconds = _seconds_of_steps(trainer)
    return PlanRow(
        n_importance=importance(wanted),
        ray_chunk=trainer.ray_chunk,  # smaller than chosen if memory ran out during the steps
        step_bytes=base + step_peak,
        render_chunk=chunk,
        image_bytes=base + memory.growth(lambda: model.view_fully(first, trainer.finished_steps)),
        per_second=conf.train.batch_size * TIMED_STEPS / seconds,
        entries=model.entries,
        fits=choice.fits,
    )


def table(conf: ExperimentConfig, scene: Scene) -> Iterator[str]:
    """The lines to print, each as soon as it is known."""
    limit = conf.train.memory_limit
    meaning = "free memory minus a margin" if isinstance(limit, str) else f"{limit:g} GB"
    yield backend.device_info().line()
    yield f"train.batch_size = {conf.train.batch_size}, train.memory_limit = {limit} ({meaning})"
    for index, row in enumerate(plan(conf, scene)):
        if index == 0:
            yield heading(row)
        yield line(row, importance(conf.model))
    sizes = sorted({scene.size(view) for view in range(scene.n_views)}, key=np.prod)
    for downscale in (1, 2, 4):  # in addition to that of the conf
        width, height = (max(1, side // downscale) for side in sizes[-1])
        if text := conf.model.fitting(max(0, memory.budget(limit)), (width, height)):
            yield f"{text} (dataset.downscale = {downscale * conf.dataset.downscale})"
    own = "" if importance(conf.model) is None else "* the value of the conf; "
    yield f"{own}the chunk sizes were tested to fit into memory on this machine; GB = 10^9 bytes"


def heading(row: PlanRow) -> str:
    """The heading of the table with rows like this one."""
    first = () if row.n_importance is None else (IMPORTANCE,)
    return "".join(name.rjust(COLUMN_WIDTH) for name in (*first, *COLUMNS, f"{row.entries}/s"))


def line(row: PlanRow, own: int | None) -> str:
    """A row of the table; `own` is the conf's n_importance."""
    first = () if row.n_importance is None else (f"{row.n_importance}{'*' if row.n_importance == own else ''}",)
    cells = (
        *first,
        str(row.ray_chunk),
        f"{row.step_bytes / memory.GB:.2f}",
        str(row.render_chunk),
        f"{row.image_bytes / memory.GB:.2f}",
        f"{row.per_second:.3g}" if row.per_second < 100 else f"{row.per_second:.0f}",
    )
    return "".join(cell.rjust(COLUMN_WIDTH) for cell in cells) + ("" if row.fits else "  does not fit")


def _seconds_of_steps(trainer: Trainer) -> float:
    """The time of TIMED_STEPS steps, after one more that fills Jittor's pool; the kernels are compiled already."""
    trainer.step()
    jt.sync_all(True)
    begin = time.perf_counter()
    for _ in range(TIMED_STEPS):
        trainer.step()
    jt.sync_all(True)
    return time.perf_counter() - begin
