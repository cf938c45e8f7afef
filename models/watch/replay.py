"""Compute a refused step again, from the file that was written when it was refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from data.errors import UserError, listed
from models.kinds.capacity import require_networks
from models.kinds.conf import parse_config
from models.kinds.registry import build_model
from models.ops.update import readings
from models.training.gradient import TOTAL
from models.training.guard import (
    MAX_NAMED,
    UPDATE_WORDS,
    StepInputs,
    fetched,
    find_in_inputs,
    find_in_readings,
    find_in_weights,
)
from models.training.trainer import Trainer, load_into
from models.watch.anomaly import Anomaly, load_anomaly


def replay(path: Path, say: Callable[[str], None]) -> bool:
    """Compute the step in an anomaly file again and say what is not finite; returns whether anything is.

    Raises UserError for a file that cannot be used.
    """
    anomaly = load_anomaly(path)
    trainer = _trainer(anomaly, path)
    try:
        batch = trainer.model.batch(anomaly.batch)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: its batch does not fit its conf ({error}); give a file from anomalies/") from error
    inputs = StepInputs(anomaly.step, batch, anomaly.noise)
    _require_noise(trainer, anomaly, len(batch), path)
    _restore_weights(trainer, anomaly, path)
    found = trainer.gradient_of(batch, anomaly.noise, chunk=len(batch))
    seen = fetched(readings(found.losses[TOTAL], found.gradients, trainer.optimizer.parameters))
    say(f"step {anomaly.step + 1}{_photograph(anomaly.batch)}; when it was skipped, not finite: ")
    say(f"  {', '.join(anomaly.findings)}")
    causes = find_in_inputs(inputs) + find_in_weights(anomaly.weights)
    terms = [f"the {name} loss" for name, term in found.losses.items() if not np.isfinite(term.numpy()).all()]
    effects = terms + find_in_readings(seen, trainer.optimizer.names)
    for words, findings in (("going in", causes), ("coming out", effects)):
        say(f"computed again, not finite {words}: {listed(findings, MAX_NAMED) or 'nothing'}")
    if not causes and not effects and any(UPDATE_WORDS in finding for finding in anomaly.findings):
        say("loss and gradients are finite: Adam's moments, which this file does not hold, made the update what it was")
    elif not causes and not effects:
        say("the same numbers give a finite step now: a fault of the machine (memory, overheating), not of the data")
    return bool(causes or effects)


def _require_noise(trainer: Trainer, anomaly: Anomaly, entries: int, path: Path) -> None:
    """Raises UserError where the jitter is not what the conf's model draws for so many entries."""
    drawn = trainer.model.draw_noise(entries, np.random.default_rng(0)) or {}
    kinds = [
        {name: (array.shape, array.dtype) for name, array in some.items()} for some in (anomaly.noise or {}, drawn)
    ]
    if anomaly.noise is not None and kinds[0] != kinds[1]:
        raise UserError(f"{path}: its jitter does not fit its conf; give a file from anomalies/ as it was written")


def _trainer(anomaly: Anomaly, path: Path) -> Trainer:
    """A trainer as it was before the step; it has no sampler and can take no further one."""
    conf = parse_config(anomaly.conf, f"the conf in {path}")
    require_networks(conf.model)
    random = np.random.default_rng(0)  # every weight is replaced
    model = build_model(conf.model, conf.train, random)
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, values in anomaly.weights.items():
        network, _, name = key.partition(".")
        shapes.setdefault(network, {})[name] = values.shape
    model.adapt(shapes)
    trainer = Trainer(model, None, conf.train, random)
    trainer.finished_steps = anomaly.step
    return trainer


def _restore_weights(trainer: Trainer, anomaly: Anomaly, path: Path) -> None:
    """The weights and buffers before the step; raises UserError where they are not the conf's."""
    weights = {
        name: {
            key.removeprefix(name + "."): value for key, value in anomaly.weights.items() if key.startswith(name + ".")
        }
        for name in trainer.networks
    }
    try:
        load_into(trainer.model, weights, anomaly.buffers)
    except ValueError as error:
        raise UserError(f"{path}: its weights do not fit its conf ({error})") from error


def _photograph(batch: dict[str, np.ndarray]) -> str:
    """Which photograph a batch is of, where it says so."""
    return f", photograph {batch['view'][0]}" if "view" in batch else ""
