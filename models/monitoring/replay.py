"""Recompute gradient and update of a skipped step from its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from data.errors import UserError, listed
from models.checkpoints.ours import MOMENTS
from models.config.optimizers import UpdateSettings
from models.methods.capacity import require_networks
from models.methods.conf import parse_config
from models.methods.registry import build_model
from models.monitoring.anomaly import Anomaly, load_anomaly
from models.ops.update import readings
from models.training.gradient import TOTAL
from models.training.guard import (
    MAX_NAMED,
    StepInputs,
    fetched,
    find_in_inputs,
    find_in_readings,
    find_in_weights,
)
from models.training.trainer import Trainer, load_into
from models.training.update_check import (
    INPUTS,
    UpdateFault,
    find_faults,
    gathered,
    is_updated,
    updated,
)

MADE = ("weight", *MOMENTS)  # results of an update for one entry
FINE_NOW = "the same step is finite now: the cause is the machine (memory, overheating), not the data"
FINE_WITHOUT_SCENE = (
    "the step is finite now, recomputed without the scene's near plane and patch loss: the cause is one of these, or "
    "the machine (memory, overheating)"
)


def replay(path: Path, say: Callable[[str], None]) -> bool:
    """Recompute the step in an anomaly file and report what is not finite; returns whether anything is.

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
    say(f"step {anomaly.step + 1}{_photograph(anomaly.batch)}; not finite when it was skipped: ")
    say(f"  {', '.join(anomaly.findings)}")
    causes = find_in_inputs(inputs) + find_in_weights(anomaly.weights)
    _say_findings("in the inputs", causes, say)
    if not anomaly.weights:
        say("the file contains no weights, because the folder was full: only the update of its entries is recomputed")
        return bool(causes) | _say_examples(anomaly, say)
    _restore_weights(trainer, anomaly, path)
    found = trainer.gradient_of(batch, anomaly.noise, chunk=len(batch))
    seen = fetched(readings(found.losses[TOTAL], found.gradients, trainer.optimizer.parameters))
    gradients = {name: value.numpy() for name, value in zip(trainer.optimizer.names, found.gradients, strict=True)}
    terms = [f"the {name} loss" for name, term in found.losses.items() if not np.isfinite(term.numpy()).all()]
    effects = terms + find_in_readings(seen, gradients)
    _say_findings("in the recomputed losses and gradients", effects, say)
    if causes or effects:
        return True
    return _replay_update(anomaly, gradients, FINE_WITHOUT_SCENE if trainer.model.needs_scene else FINE_NOW, say)


def _say_findings(where: str, findings: list[str], say: Callable[[str], None]) -> None:
    """Print what is not finite in the inputs, or in the recomputed values."""
    say(f"not finite {where}: {listed(findings, MAX_NAMED) or 'nothing'}")


def _replay_update(anomaly: Anomaly, gradients: dict[str, np.ndarray], fine: str, say: Callable[[str], None]) -> bool:
    """Recompute the update of finite gradients with the moments in the file; returns whether it is not finite.

    `fine`: what it means if the update is finite.
    """
    if anomaly.settings is None:
        is_of_the_update = any("the update" in finding for finding in anomaly.findings)
        say(
            "loss and gradients are finite: the cause was the moments, which this file does not contain"
            if is_of_the_update
            else fine
        )
        return False
    if not anomaly.moments:
        say("the file contains no moments, because the folder was full: only the update of its entries is recomputed")
        return _say_examples(anomaly, say)
    weights = {name: anomaly.weights[name] for name in gradients}
    faults = find_faults(gathered(weights, gradients, anomaly.moments), anomaly.settings)
    for fault in faults:
        _say_fault(fault, anomaly.settings, say)
    if not faults:
        say(f"the update is finite too: {fine}")
    return bool(faults)


def _say_examples(anomaly: Anomaly, say: Callable[[str], None]) -> bool:
    """Recompute the update of the entries in the file; returns whether any is still not finite."""
    settings, is_bad = anomaly.settings, False
    for fault in anomaly.faults if settings is not None else ():
        _say_fault(fault, settings, say)
        is_bad |= len(fault.places) > 0 and not is_updated(fault.examples, settings.rate(fault.name), settings)
    if not anomaly.faults:
        say("when the step was skipped, all entries of the update were finite")
    return is_bad


def _say_fault(fault: UpdateFault, settings: UpdateSettings, say: Callable[[str], None]) -> None:
    """Print the parameter, the number of its entries, and the first one with its update in this program and in
    float64.
    """
    say(f"{fault.words()}, of {fault.size} entries")
    if not len(fault.places):
        return
    one, rate = fault.examples.at(np.array([0])), settings.rate(fault.name)
    numbers = ", ".join(f"{name} {getattr(one, name)[0]:.9g}" for name in INPUTS)
    made = zip(MADE, updated(one, rate, settings, np.float64)[:, 0], strict=True)
    exact = ", ".join(f"{name} {value:.9g}" for name, value in made)
    ours = "finite" if is_updated(one, rate, settings) else "NaN or Inf"
    say(
        f"  entry {fault.places[0]}: {numbers}, learning rate {rate:.3g} -> recomputed: {ours} in this program, "
        f"{exact} in float64"
    )


def _require_noise(trainer: Trainer, anomaly: Anomaly, entries: int, path: Path) -> None:
    """Raises UserError if the jitter does not match the conf's model for this number of entries."""
    drawn = trainer.model.draw_noise(entries, np.random.default_rng(0)) or {}
    kinds = [
        {name: (array.shape, array.dtype) for name, array in some.items()} for some in (anomaly.noise or {}, drawn)
    ]
    if anomaly.noise is not None and kinds[0] != kinds[1]:
        raise UserError(f"{path}: its jitter does not fit its conf; give an unmodified file from anomalies/")


def _trainer(anomaly: Anomaly, path: Path) -> Trainer:
    """A trainer in the state before the step, without a sampler."""
    conf = parse_config(anomaly.conf, f"the conf in {path}")
    require_networks(conf.model)
    random = np.random.default_rng(0)  # every weight is replaced
    model = build_model(conf.model, conf.train, random)
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, values in anomaly.weights.items():
        network, _, name = key.partition(".")
        shapes.setdefault(network, {})[name] = values.shape
    if shapes:
        model.adapt(shapes)
    trainer = Trainer(model, None, conf.train, random)
    trainer.finished_steps = anomaly.step
    return trainer


def _restore_weights(trainer: Trainer, anomaly: Anomaly, path: Path) -> None:
    """Restore the weights and buffers before the step; raises UserError if they do not fit the conf."""
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
    """The photograph of a batch, if the batch stores it."""
    return f", photograph {batch['view'][0]}" if "view" in batch else ""
