"""The decisions of the plan for methods other than fast_neus."""

from __future__ import annotations

from dataclasses import replace

from models.config.blocks import TrainConfig
from models.methods.block import ModelConfig
from models.methods.confs import FastNeRFConfig, NeRFConfig, NeuSConfig
from models.methods.gaussians.conf import GaussiansConfig
from models.plan import (
    GIVEN,
    INTERIOR,
    NONE,
    OBJECT,
    TRIANGULATED,
    Before,
    Decision,
    Measurements,
    TrainingPlan,
    decide_exposure,
    decide_masks,
)


def decide_plain(conf: ModelConfig, train: TrainConfig, measured: Measurements, before: Before) -> TrainingPlan:
    """The plan of a method that chooses nothing by the scene but its masks."""
    return TrainingPlan(
        masks=decide_masks(measured, train),
        background=Decision(train.background_name, "", "train.use_white_bkgd"),
        start=Decision("random"),
    )


def decide_neus(conf: NeuSConfig, train: TrainConfig, measured: Measurements, before: Before) -> TrainingPlan:
    """NeuS with dense samples, as published: what it trains follows from its keys."""
    plan, sdf = decide_plain(conf, train, measured, before), conf.block(conf.surface)
    count, key = conf.neus_renderer.n_outside, "model.neus_renderer.n_outside"
    is_inverted = getattr(sdf, "inside_outside", False)
    keys = {name: f"model.{conf.surface}.{name}" if hasattr(sdf, name) else "" for name in ("inside_outside", "bias")}
    return replace(
        plan,
        region=Decision(INTERIOR if is_inverted else OBJECT, "", keys["inside_outside"]),
        background=Decision("NeRF", "outside the unit sphere", key) if count > 0 else plan.background,
        start=Decision("sphere", "", keys["bias"]),
    )


def decide_nerf(
    conf: NeRFConfig | FastNeRFConfig, train: TrainConfig, measured: Measurements, before: Before
) -> TrainingPlan:
    """A radiance field."""
    plan = decide_plain(conf, train, measured, before)
    if isinstance(conf, NeRFConfig):
        return plan
    pruning = Decision(conf.radiance.prune_from, "", "model.radiance.prune_from")
    exposure = decide_exposure(conf.photographs.exposure, measured, before)
    return replace(plan, start=Decision("uniform density"), exposure=exposure, prune_from=pruning)


def decide_gaussians(conf: GaussiansConfig, train: TrainConfig, measured: Measurements, before: Before) -> TrainingPlan:
    """Gaussians, which start at the SfM points if there are any."""
    found, key = NONE, "dataset.triangulate_points"
    if measured.points:
        found = TRIANGULATED if measured.are_points_derived else GIVEN
    start = "random points" if found == NONE else "SfM points, and random ones up to model.gaussians.first"
    return replace(
        decide_plain(conf, train, measured, before),
        start=Decision(start, "", "model.gaussians.first"),
        points=Decision(found, "", key),
        exposure=decide_exposure(conf.photographs.exposure, measured, before),
    )
