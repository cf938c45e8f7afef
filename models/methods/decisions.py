"""The decisions of the plan for methods other than fast_neus."""

from __future__ import annotations

from dataclasses import replace

from models.config.blocks import TrainConfig
from models.fields.registry import NERF, RENDERING_NETWORK
from models.methods.block import ModelConfig
from models.methods.confs import ESTIMATORS, FastNeRFConfig, NeRFConfig, NeuSConfig
from models.methods.gaussians.conf import GaussiansConfig
from models.plan import (
    GIVEN,
    INTERIOR,
    NONE,
    OBJECT,
    TRIANGULATED,
    Decision,
    EarlierPlan,
    Measurements,
    TrainingPlan,
    decide_exposure,
    decide_masks,
)


def decide_plain(conf: ModelConfig, train: TrainConfig, measured: Measurements, earlier: EarlierPlan) -> TrainingPlan:
    """The plan of a method that chooses nothing by the scene but its masks."""
    return TrainingPlan(
        masks=decide_masks(measured, train),
        background=Decision(train.background_name, "", "train.use_white_bkgd"),
        start=Decision("random"),
    )


def decide_neus(conf: NeuSConfig, train: TrainConfig, measured: Measurements, earlier: EarlierPlan) -> TrainingPlan:
    """NeuS, as published or with another estimator: what it trains follows from its keys."""
    plan, sdf, samples = decide_plain(conf, train, measured, earlier), conf.block(conf.surface), conf.sampling
    if samples.background:
        key = f"model.{conf.estimator}.{samples.background_key}"
        plan = replace(plan, background=Decision(samples.background, "outside the unit sphere", key))
    others = {name: kind.block for name, kind in ESTIMATORS.items() if name != conf.estimator}
    is_inverted = getattr(sdf, "inside_outside", False)
    keys = {name: f"model.{conf.surface}.{name}" if hasattr(sdf, name) else "" for name in ("inside_outside", "bias")}
    return replace(
        plan,
        region=Decision(INTERIOR if is_inverted else OBJECT, "", keys["inside_outside"]),
        start=Decision("sphere", "", keys["bias"]),
        unused=[f"model.{key}" for name, block in others.items() for key in (name, *block.network_blocks)],
    )


def decide_nerf(
    conf: NeRFConfig | FastNeRFConfig, train: TrainConfig, measured: Measurements, earlier: EarlierPlan
) -> TrainingPlan:
    """A radiance field."""
    plan = decide_plain(conf, train, measured, earlier)
    if conf.radiance_field == NERF:  # it has no separate colour network
        plan = replace(plan, unused=[f"model.{RENDERING_NETWORK}"])
    if isinstance(conf, NeRFConfig):
        return plan
    pruning = Decision(conf.radiance.prune_from, "", "model.radiance.prune_from")
    exposure = decide_exposure(conf.photographs.exposure, measured, earlier)
    return replace(plan, start=Decision("uniform density"), exposure=exposure, prune_from=pruning)


def decide_gaussians(
    conf: GaussiansConfig, train: TrainConfig, measured: Measurements, earlier: EarlierPlan
) -> TrainingPlan:
    """Gaussians, which start at the SfM points if there are any."""
    points, key = NONE, "dataset.triangulate_points"
    if measured.points:
        points = TRIANGULATED if measured.are_points_derived else GIVEN
    start = "random points" if points == NONE else "SfM points, and random ones up to model.gaussians.first"
    return replace(
        decide_plain(conf, train, measured, earlier),
        start=Decision(start, "", "model.gaussians.first"),
        points=Decision(points, "", key),
        exposure=decide_exposure(conf.photographs.exposure, measured, earlier),
    )
