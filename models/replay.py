"""Compute a refused step again, from the file that was written when it was refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from data.errors import UserError, listed
from models.capacity import require_networks
from models.config import parse_config
from models.fields.state import import_state
from models.runner import build_renderer
from models.training.anomaly import Anomaly, load_anomaly
from models.training.guard import (
    MAX_NAMED,
    UPDATE_WORDS,
    fetched,
    find_in_inputs,
    find_in_readings,
    find_in_weights,
    readings,
)
from models.training.trainer import Trainer


def replay(path: Path, say: Callable[[str], None]) -> bool:
    """Compute the step in an anomaly file again and say what is not finite; returns whether anything is.

    Raises UserError for a file that cannot be used.
    """
    anomaly = load_anomaly(path)
    trainer = _trainer(anomaly, path)
    batch = anomaly.inputs.batch
    _require_noise(trainer, anomaly, path)
    found = trainer.gradient_of(batch, anomaly.inputs.noise, chunk=len(batch.rays))
    seen = fetched(readings(found.terms.total, found.gradients, trainer.optimizer.parameters))
    say(f"step {anomaly.inputs.step + 1}, photograph {batch.view[0]}; when it was skipped, not finite: ")
    say(f"  {', '.join(anomaly.findings)}")
    causes = find_in_inputs(anomaly.inputs) + find_in_weights(anomaly.weights)
    terms = [f"the {name} loss" for name, term in vars(found.terms).items() if not np.isfinite(term.numpy()).all()]
    effects = terms + find_in_readings(seen, trainer.parameter_names)
    for words, findings in (("going in", causes), ("coming out", effects)):
        say(f"computed again, not finite {words}: {listed(findings, MAX_NAMED) or 'nothing'}")
    if not causes and not effects and any(UPDATE_WORDS in finding for finding in anomaly.findings):
        say("loss and gradients are finite: Adam's moments, which this file does not hold, made the update what it was")
    elif not causes and not effects:
        say("the same numbers give a finite step now: a fault of the machine (memory, overheating), not of the data")
    return bool(causes or effects)


def _require_noise(trainer: Trainer, anomaly: Anomaly, path: Path) -> None:
    """Raises UserError where the jitter is not what the conf's model draws for these rays."""
    noise = anomaly.inputs.noise
    drawn = trainer.renderer.draw_noise(len(anomaly.inputs.batch.rays), np.random.default_rng(0))
    shapes = [{name: array.shape for name, array in vars(some).items()} if some else None for some in (noise, drawn)]
    if noise is not None and shapes[0] != shapes[1]:
        raise UserError(f"{path}: its jitter does not fit its conf; give a file from anomalies/ as it was written")


def _trainer(anomaly: Anomaly, path: Path) -> Trainer:
    """A trainer as it was before the step; it has no sampler and can take no further one."""
    conf = parse_config(anomaly.conf, f"the conf in {path}")
    require_networks(conf.model)
    random = np.random.default_rng(0)  # every weight is replaced
    trainer = Trainer(build_renderer(conf.model, random), None, conf.train, random)
    trainer.finished_steps = anomaly.inputs.step
    for name, network in trainer.networks.items():
        prefix = name + "."
        weights = {key.removeprefix(prefix): value for key, value in anomaly.weights.items() if key.startswith(prefix)}
        try:
            import_state(network, weights)
        except ValueError as error:
            raise UserError(f"{path}: its weights do not fit its conf ({name}: {error})") from error
    return trainer
