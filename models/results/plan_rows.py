"""The table of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from models.config.blocks import TrainConfig
from models.config.hocon import base_values, same
from models.methods.block import ModelConfig
from models.plan import DEPTH_MAPS, SCORED_FROM, Decision, TrainingPlan

NO_RETURN = f"no return: no checkpoint from step {SCORED_FROM} on before the end [train.save_freq]"
COLLAPSE = "back to the best checkpoint when scored views stay worse for two checkpoints [train.save_freq]"

# Keys besides its weight that have no effect unless a loss is used.
OF_LOSSES = {"model.patches": "patches", "train.patches_from": "patches", "model.photographs.exposure_rate": "exposure"}
WEIGHT = "_weight"  # end of the keys of weights


def with_table(
    plan: TrainingPlan,
    conf: ModelConfig,
    train: TrainConfig,
    weights: Mapping[str, Decision],
    values: Mapping[str, Any],
) -> TrainingPlan:
    """The plan with its table, unless it has one, and of the keys without effect those that differ from confs/base.

    weights: of the losses that the plan uses, by name; values: all keys of the conf, dotted.
    """
    if plan.rows:
        return plan
    base = base_values(conf.type)
    changed = [key for key, value in values.items() if not same(value, base, key)]
    used = {name: weight for name, weight in weights.items() if weight.value > 0}
    keys = {weight.key for weight in weights.values()}
    idle = [*plan.unused, *(key for key, loss in OF_LOSSES.items() if loss not in used and values.get(key, True))]
    idle += [key for key, value in values.items() if key.endswith(WEIGHT) and key not in keys and value]
    unused = [one for one in idle if any(_within(key, [one]) for key in changed)]
    rows = [(name, getattr(plan, name).text()) for name in ("masks", "region", "background", "start")]
    sizes = ["train.batch_size", *(f"model.{key}" for key in conf.sizes if not _within(f"model.{key}", plan.unused))]
    first = "of the depth maps first, then " if plan.start.value == DEPTH_MAPS and not plan.points.is_forced else ""
    rows += [
        ("points", first + plan.points.text()),
        ("losses", _losses(weights)),
        ("schedules", _schedules(plan, train, values)),
        ("samples", ", ".join(f"{key} = {values[key]}" for key in sizes)),
        ("exposure", replace(plan.exposure, value="learned" if plan.exposure.value else "not learned").text()),
        ("collapse", COLLAPSE if train.save_freq and train.end_iter >= SCORED_FROM else NO_RETURN),
    ]
    return replace(plan, rows=rows, unused=unused)


def _within(key: str, blocks: Iterable[str]) -> bool:
    """Whether a dotted key is one of the keys, or in one of the blocks."""
    return any(f"{key}.".startswith(f"{block}.") for block in blocks)


def _losses(weights: Mapping[str, Decision]) -> str:
    """The losses with their weights, and why some were chosen."""
    used = ", ".join(f"{name} {weight.value:g}" for name, weight in weights.items() if weight.value > 0)
    fixed = "".join(f"; {name}: fixed" for name, weight in weights.items() if not weight.key)
    notes = [
        f"{name} {weight.text()}" if weight.value > 0 else f"no {name}: {weight.reason} [{weight.key}]"
        for name, weight in weights.items()
        if weight.reason
    ]
    return "; ".join([f"{used} [train.NAME_weight; eikonal: train.igr_weight{fixed}]", *notes])


def _schedules(plan: TrainingPlan, train: TrainConfig, values: Mapping[str, Any]) -> str:
    """Learning rate, pruning and the bound of inv_s."""
    last = train.learning_rate * train.learning_rate_alpha
    parts = [f"{train.end_iter} steps, learning rate {train.learning_rate:g} to {last:g} ({train.learning_rate_decay})"]
    if plan.prune_from.key:
        step = round(plan.prune_from.value * train.end_iter)
        parts.append(f"cells pruned from step {replace(plan.prune_from, value=step).text()}")
    if plan.largest_inv_s.key:
        bound = plan.largest_inv_s
        words = (
            "not bounded" if bound.value is None else f"at most {bound.value / values['model.packed.last_step']:.0f}"
        )
        parts.append(f"inv_s {replace(bound, value=words).text()}")
    return "; ".join(parts)
