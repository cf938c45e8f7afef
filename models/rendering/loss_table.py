"""The lines of a table of losses: function, weight, schedule, and the plans that use the loss.

The weight of the loss NAME is the key train.NAME_weight, or 1 without such a key. It counts from `begins` on, a
fraction of train.end_iter, which the key train.NAME_from replaces; with `falls`, it falls linearly to 0 at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from models.config.blocks import TrainConfig
from models.config.strict import AUTO, Auto, field_types
from models.plan import DEPTH_MAPS, NONE, PLAIN, Decision, TrainingPlan
from models.structs import Term

PATCHES, PATCHES_WITH_MASKS = 0.5, 0.2  # of `auto`; a larger one rounds thin objects
# When a loss applies, in words.
ALWAYS, MASKS, BESIDE = "always", "with masks", "with masks or a plain background"
POINTS, EXPOSURE = "with SfM points or depth maps", "with learned exposure"
CONDITIONS: Mapping[str, Callable[[TrainingPlan], bool]] = {
    ALWAYS: lambda plan: True,
    MASKS: lambda plan: plan.uses_masks,
    BESIDE: lambda plan: plan.uses_masks or plan.background.value == PLAIN,
    POINTS: lambda plan: plan.points.value != NONE or plan.start.value == DEPTH_MAPS,
    EXPOSURE: lambda plan: bool(plan.exposure.value),
}


def _given(weight: Any, train: TrainConfig, plan: TrainingPlan) -> Decision:
    """The weight of the key, or that of `auto`."""
    if weight != AUTO:
        return Decision(weight, is_forced=True)
    if plan.uses_masks:
        return Decision(PATCHES_WITH_MASKS, "masks already bound the surface")
    return Decision(PATCHES, "no masks bound the surface")


@dataclass(frozen=True)
class Loss:
    """A line of the table."""

    term: Callable[[Any], Term | None]  # function of a rendering; None if there is nothing to compare
    kinds: tuple[str, ...] = ()  # values of model.type, or forms of Gaussians; (): all of the table
    when: str = ALWAYS  # a key of CONDITIONS
    key: str = ""  # of the weight, if it is not train.NAME_weight
    begins: float = 0.0
    falls: bool = False
    decide: Callable[[Any, TrainConfig, TrainingPlan], Decision] = _given

    def weight(self, name: str, train: TrainConfig, plan: TrainingPlan) -> Decision:
        """The weight, with the key that sets it."""
        key = self.key or f"{name}_weight"
        if not hasattr(train, key):
            return Decision(1.0)
        decision = self.decide(getattr(train, key), train, plan)
        begins = self._begins(name, train)
        notes = [f"from step {begins:.0f} on"] * (begins > 0) + ["falls to 0 at the end"] * self.falls
        reason = "; ".join(([decision.reason] if decision.reason else []) + notes * (decision.value > 0))
        is_forced = decision.is_forced and Auto in get_args(field_types(TrainConfig)[key])  # instead of a chosen weight
        return replace(decision, reason=reason, key=decision.key or f"train.{key}", is_forced=is_forced)

    def _begins(self, name: str, train: TrainConfig) -> float:
        return getattr(train, f"{name}_from", self.begins) * train.end_iter

    def factor(self, name: str, step: int, train: TrainConfig) -> float:
        """The factor of the schedule on the weight."""
        if step < self._begins(name, train):
            return 0.0
        return 1.0 - step / train.end_iter if self.falls else 1.0


def weights_of(
    table: Mapping[str, Loss], kinds: Collection[str], train: TrainConfig, plan: TrainingPlan
) -> dict[str, Decision]:
    """The weights of the losses that the plan uses, by name in the order of the table; some may be 0."""
    return {
        name: loss.weight(name, train, plan)
        for name, loss in table.items()
        if (not loss.kinds or set(loss.kinds) & set(kinds)) and CONDITIONS[loss.when](plan)
    }


def terms_of(
    table: Mapping[str, Loss], weights: Mapping[str, Decision], rendered: Any, step: int, train: TrainConfig
) -> dict[str, Term]:
    """The terms of the losses with a weight at this step, by name."""
    terms = {}
    for name, decision in weights.items():
        weight = decision.value * table[name].factor(name, step, train)
        if weight > 0.0 and (term := table[name].term(rendered)) is not None:
            terms[name] = replace(term, weight=weight)
    return terms
