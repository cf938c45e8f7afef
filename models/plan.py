"""What a training does: decided once from the scene and the conf, before the model is built. Does not import Jittor.

Each decision has its value, its reason, and the key of the conf that forces another value. A checkpoint contains the
plan, and everything that reads the checkpoint follows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from data.errors import UserError
from models.config.blocks import LARGEST_LEVELS, TrainConfig
from models.config.strict import AUTO, Auto

PLAN_KEY = "plan"  # in the state of a checkpoint, and in metrics.json
OLD = ("patches", "curvature")  # decisions in checkpoints of the version before
GIVEN, DERIVED, TRIANGULATED, NONE = "given", "derived", "triangulated", "none"
OBJECT, INTERIOR = "object", "interior"
CONTRACTED, PLAIN = "contracted", "plain"
SPHERE, DEPTH_MAPS = "sphere", "depth maps"
LEAST_STEPS = 200  # of a training whose time is over: fewer give no usable result
SCORED_FROM = 500  # steps; earlier scores of views are not compared
LEARNED_STOPS = 0.2  # stops by which neighbouring photographs differ, from which exposure is learned


class FusedDepth(Protocol):
    """The surface that depth maps show within the unit sphere, working frame."""

    @property
    def points(self) -> np.ndarray:
        """Points of the depth maps, float32 [N, 3]."""

    @property
    def known(self) -> float:
        """The fraction of the pixels that have a depth."""

    @property
    def views(self) -> int:
        """The number of photographs, at most, that have depth maps."""

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Approximate signed distances [P, 1] at points [P, 3]."""


@dataclass(frozen=True)
class Measurements:
    """What was measured in the photographs of a scene, and what can be."""

    has_masks: bool  # from files or derived from a backdrop
    backdrop: np.ndarray | None  # [3], its colour if masks are derived from it
    points: int | None  # number of SfM points; None if there was no search for them
    are_points_derived: bool  # triangulated by this program
    points_in_region: Callable[[], int]  # well-supported training points in the cube around the region
    exposure_spread: Callable[[], float]  # median difference in brightness of neighbouring photographs, in stops
    # Radius -> share of the cameras nearer to the centre, and of these, of those that look outwards.
    cameras_within: Callable[[float], tuple[float, float]]
    # Tolerance -> the colour of the borders of each photograph [V, 3]; None if they differ by more.
    border_colours: Callable[[float], np.ndarray | None]
    shows_outside_masks: Callable[[np.ndarray | None], bool]  # whether photographs show this colour [3]; None: black
    # Number of photographs, at most (0: as many as the time allows) -> their depth maps; None if too few pixels have a
    # depth.
    depth: Callable[[int], FusedDepth | None]


@dataclass(frozen=True)
class Decision:
    """A value, the reason for it in words, and the key that forces another one."""

    value: Any
    reason: str = ""
    key: str = ""
    is_forced: bool = False  # by the key, not chosen from the scene

    def text(self) -> str:
        """Value, reason and key."""
        reason = f": {self.reason}" if self.reason else ""
        how = "forced by " if self.is_forced else ""
        return f"{self.value}{reason}" + (f" [{how}{self.key}]" if self.key else "")


@dataclass(frozen=True)
class TrainingPlan:
    """The decisions about a training. The defaults are those of a model without a scene."""

    masks: Decision = Decision(NONE)
    region: Decision = Decision(OBJECT)
    background: Decision = Decision(CONTRACTED)
    start: Decision = Decision(SPHERE)
    points: Decision = Decision(NONE)
    exposure: Decision = Decision(False)
    smooth: Decision = Decision(0)  # levels of a grid of the SDF without creases; 0 in checkpoints that do not tell
    largest_inv_s: Decision = Decision(None)  # bound in 1 / last_step; None: unbounded
    prune_from: Decision = Decision(0.0)  # fraction of end_iter
    depth_views: int = 0  # photographs, at most, that a start from depth maps uses
    radius: float = 0.5  # of the initial sphere
    sky: Sequence[float] | None = None  # [3], colour of a plain background
    rows: Sequence[tuple[str, str]] = ()  # the table: names and texts
    unused: Sequence[str] = ()  # keys that were set and have no effect
    depth: FusedDepth | None = field(default=None, compare=False, repr=False)  # of a start from depth maps; not saved

    @property
    def uses_masks(self) -> bool:
        """Whether losses and cells use masks."""
        return self.masks.value != NONE

    @property
    def is_interior(self) -> bool:
        """Whether the scene is photographed from within."""
        return self.region.value == INTERIOR

    def state(self) -> dict[str, Any]:
        """The plan as JSON values."""
        values = asdict(replace(self, depth=None))
        del values["depth"]
        return values

    def lines(self) -> list[str]:
        """The table and the keys without effect, for the log."""
        width = max((len(name) for name, _ in self.rows), default=0)
        lines = [f"{name:<{width}}  {text}" for name, text in self.rows]
        return lines + ([f"keys without effect here: {', '.join(self.unused)}"] if self.unused else [])


@dataclass(frozen=True)
class EarlierPlan:
    """What a training began with, which a resume keeps; the defaults are for a new one."""

    region: Decision | None = None
    background: Decision | None = None
    start: Decision | None = None
    exposure: Decision | None = None
    smooth: Decision | None = None
    depth_views: int = 0
    step: int = 0  # finished steps


UNSWEPT = EarlierPlan(start=Decision(SPHERE))  # without depth maps, which take long
# Of values; those of other decisions are texts.
VALUE_TYPES = {"exposure": bool, "smooth": int, "largest_inv_s": float | int | None, "prune_from": float | int}


def decided(key: str, choice: Any, find: Callable[[], tuple[Any, str]], earlier: Decision | None = None) -> Decision:
    """The earlier decision of a training that is resumed, else the conf's choice, else what `find` finds and why.

    Raises UserError if the conf now forces another value than the earlier one.
    """
    if earlier is not None and choice not in (AUTO, earlier.value):
        raise UserError(
            f"{key} = {choice}: the checkpoint was trained with {earlier.value}, which a resume keeps; remove the key, "
            "or train again"
        )
    if earlier is not None:
        return earlier
    return Decision(*find(), key) if choice == AUTO else Decision(choice, "", key, is_forced=True)


def plan_from_state(values: Mapping[str, Any]) -> TrainingPlan:
    """The inverse of `TrainingPlan.state`; raises TypeError, ValueError or AttributeError for other values."""
    named: dict[str, Any] = {
        name: Decision(**one) if isinstance(one, Mapping) else one for name, one in values.items() if name not in OLD
    }
    plan = TrainingPlan(**named)
    decisions = {name: getattr(plan, name) for name, one in vars(TrainingPlan()).items() if isinstance(one, Decision)}
    are_typed = all(
        isinstance(one, Decision)
        and isinstance(one.value, VALUE_TYPES.get(name, str))
        and [type(part) for part in (one.reason, one.key, one.is_forced)] == [str, str, bool]
        for name, one in decisions.items()
    )
    rows, sky = [list(row) for row in plan.rows], (0.0, 0.0, 0.0) if plan.sky is None else plan.sky
    texts = all(isinstance(text, str) and len(row) == 2 for row in rows for text in row)
    texts = texts and all(isinstance(text, str) for text in plan.unused) and plan.depth is None
    numbers = (plan.radius, plan.depth_views, plan.prune_from.value, plan.largest_inv_s.value or 0.0, *sky)
    is_finite = all(isinstance(number, float | int) and math.isfinite(number) for number in numbers) and len(sky) == 3
    is_count = type(plan.smooth.value) is int and 0 <= plan.smooth.value <= LARGEST_LEVELS
    if not (are_typed and texts and is_finite and is_count and plan.masks.value in (GIVEN, DERIVED, NONE)):
        raise ValueError("its values are not those of a plan")
    return plan


def wants_masks(train: TrainConfig) -> bool:
    """Whether masks are used if there are any; without this, none are derived."""
    return train.mask_weight > 0


def decide_masks(measured: Measurements, train: TrainConfig) -> Decision:
    """Whether masks are used, and whether they are files or derived from a backdrop."""
    key = "train.mask_weight"
    if not wants_masks(train):
        return Decision(NONE, "the mask loss has no weight", key, is_forced=True)
    if not measured.has_masks:
        reason = "no mask files in the scene folder, and none derived from a backdrop"
        return Decision(NONE, reason, "dataset.masks_from_backdrop")
    if measured.backdrop is not None:
        return Decision(DERIVED, "the photographs have a backdrop of one colour", "dataset.masks_from_backdrop")
    return Decision(GIVEN, "the scene has masks", key)


def decide_exposure(choice: bool | Auto, measured: Measurements, earlier: EarlierPlan) -> Decision:
    """Whether the exposure of each photograph is learned: if it varies between neighbouring photographs."""

    def find() -> tuple[bool, str]:
        spread = measured.exposure_spread()
        reason = f"neighbouring photographs differ by {spread:.2f} stops, and at least {LEARNED_STOPS} are learned"
        return spread >= LEARNED_STOPS, reason

    return decided("model.photographs.exposure", choice, find, earlier.exposure)
