"""The composition of a training step: Jittor's profiler, with operations sorted by phase and kind."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from models.machine.backend import jt
from models.training.gradient import losses_of
from models.training.trainer import Trainer

NANOSECONDS = 1e-9
REPEATS = 3
NATIVE_CALL = re.compile(r"neus::(\w+)\(")
# First match wins; the patterns are of Jittor's operation names.
KINDS = (
    ("matrix product", re.compile(r"mkl_matmul|matmul")),
    ("sorting", re.compile(r"^argsort")),
    ("slicing and joining", re.compile(r"^(getitem|setitem)|reindex")),
    ("reduction", re.compile(r":reduce«")),
)
SAMPLING, FIELDS, OPTIMISER = "sampling", "forward and backward", "optimiser"


def kind_of(name: str, source: str) -> str:
    """The kind of a row of the profiler, from the operation's name and the text of its kernel."""
    if name.startswith("code"):
        call = NATIVE_CALL.search(source)
        return f"native {call[1]}" if call else "search"
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "element-wise")


def profile(trainer: Trainer) -> tuple[float, dict[str, dict[str, float]]]:
    """Seconds of a whole step, not profiled, and of its operations by phase and kind; means of REPEATS, alternating.

    The difference of the two is the time of Python, graph construction and dispatch.
    """
    whole = 0.0
    phases: dict[str, Counter[str]] = {SAMPLING: Counter(), FIELDS: Counter(), OPTIMISER: Counter()}
    for _ in range(REPEATS):
        begin = time.perf_counter()
        trainer.step()
        jt.sync_all(True)
        whole += (time.perf_counter() - begin) / REPEATS
        _profile_step(trainer, phases)
    return whole, {phase: {kind: s / REPEATS for kind, s in kinds.most_common()} for phase, kinds in phases.items()}


def _profile_step(trainer: Trainer, phases: dict[str, Counter[str]]) -> None:
    """The phases of `Trainer.step`, each added to its counter."""
    model, step, batch = trainer.model, trainer.finished_steps, trainer.sampler.next()
    noise = model.draw_noise(len(batch), np.random.default_rng(0))
    with _timed(phases[SAMPLING]):
        precomputed = model.precompute(batch, noise)
    with _timed(phases[FIELDS]):
        losses = losses_of(model.objective(batch, noise, step, precomputed), {})
        gradients = jt.grad(losses["total"], trainer.optimizer.parameters)
        jt.sync(gradients)
    with _timed(phases[OPTIMISER]):
        trainer.optimizer.step(gradients, trainer.learning_rate)
        jt.sync_all(True)


@contextlib.contextmanager
def _timed(kinds: Counter[str]) -> Iterator[None]:
    """Add the seconds of the operations that run within the body, by kind."""
    with jt.profile_scope(0, 0) as report:
        yield
    header, *rows = report
    name, file, duration = (header.index(column) for column in ("Name", "FileName", "TotalTime"))
    for row in rows:
        source = Path(row[file]).read_text(errors="replace") if row[name].startswith("code") else ""
        kinds[kind_of(row[name], source)] += float(row[duration]) * NANOSECONDS
