"""The plan of each method, and for fast_neus a function per decision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data.scenes.scene import LEAST_OUTWARD
from data.scenes.sparse import LEAST_REGION_POINTS
from models.config.blocks import TrainConfig
from models.config.strict import AUTO, Auto
from models.fields.registry import NERF, RENDERING_NETWORK
from models.methods.block import ModelConfig
from models.methods.confs import ESTIMATORS, FastNeRFConfig, FastNeuSConfig, NeRFConfig, NeuSConfig
from models.methods.gaussians.conf import GaussiansConfig
from models.plan import (
    CONTRACTED,
    DEPTH_MAPS,
    DERIVED,
    GIVEN,
    INTERIOR,
    NONE,
    OBJECT,
    PLAIN,
    SPHERE,
    TRIANGULATED,
    Decision,
    EarlierPlan,
    FusedDepth,
    Measurements,
    TrainingPlan,
    decide_exposure,
    decide_masks,
    decided,
)

# Radius of the initial sphere of a scene photographed from within. It encloses the cameras and lies in the region.
INTERIOR_RADIUS = 0.9
MASKED_RADIUS = 0.5  # that of the published code
OPEN_RADIUS = 0.3  # a larger sphere than the object, in a region larger than the object, may never become a surface
PLAIN_DIFFERENCE = 0.05  # from the colour of a plain backdrop
SHARPEST = 4.0  # inv_s in 1 / last_step
# Fractions of end_iter. Before the surface has grown along the SfM points, it remains incomplete; with fused depth, it
# is known to about a hundredth of the radius.
PRUNE_OPEN, PRUNE_PLAIN, PRUNE_DEPTH = 0.3, 0.2, 0.05
UNUSED = ("train.anneal_end",)  # by either


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


def decide_fast_neus(
    conf: FastNeuSConfig, train: TrainConfig, measured: Measurements, earlier: EarlierPlan
) -> TrainingPlan:
    """A surface in occupied cells; a training that is resumed keeps what it began with."""
    masks, region = decide_masks(measured, train), decide_region(conf.plan.region, measured, earlier)
    plan = TrainingPlan(
        masks=masks,
        region=region,
        points=decide_points(train, measured, masks),
        exposure=decide_exposure(conf.photographs.exposure, measured, earlier),
        smooth=decide_smooth(conf, earlier),
    )
    radius, key = getattr(conf.block(conf.surface), "bias", AUTO), f"model.{conf.surface}.bias"
    if masks.value != NONE:
        colour = "the backdrop's colour" if masks.value == DERIVED else train.background_name
        return replace(
            plan,
            background=Decision(NONE, f"{colour} outside the masks", "train.mask_weight"),
            start=Decision(SPHERE, "from depth maps only without masks; its radius:", key),
            largest_inv_s=decide_largest_inv_s(conf.inside.largest_inv_s, train, measured, masks),
            prune_from=Decision(conf.inside.prune_from, "", "model.inside.prune_from"),
            radius=(INTERIOR_RADIUS if plan.is_interior else MASKED_RADIUS) if radius == AUTO else radius,
            unused=("model.open", "model.density_grid", "model.plan.background", "dataset.triangulate_points", *UNUSED),
        )
    background = decide_background(conf.plan.background, measured, earlier)
    start, depth = decide_start(conf, train, measured, earlier)
    colours = measured.border_colours(np.inf) if background.value == PLAIN else None
    return replace(
        plan,
        background=background,
        start=start,
        prune_from=decide_pruning(conf.open.prune_from, background, start),
        radius=(INTERIOR_RADIUS if plan.is_interior else OPEN_RADIUS) if radius == AUTO else radius,
        sky=None if colours is None else colours[0].tolist(),
        unused=("model.inside", "train.use_white_bkgd", *UNUSED),
        depth=depth,
        depth_views=earlier.depth_views if depth is None else depth.views,
    )


def decide_smooth(conf: FastNeuSConfig, earlier: EarlierPlan) -> Decision:
    """How many levels of a grid are smooth: those of the start, whose large cells would leave creases."""
    surface, first = conf.block(conf.surface), conf.packed.first_levels
    if not hasattr(surface, "smooth"):
        return Decision(0)
    key = f"model.{conf.surface}.smooth"
    return decided(key, surface.smooth, lambda: (first, "those of the start"), earlier.smooth)


def decide_region(choice: str, measured: Measurements, earlier: EarlierPlan) -> Decision:
    """Whether most cameras are within INTERIOR_RADIUS and at least LEAST_OUTWARD of them look away from the centre."""

    def find() -> tuple[str, str]:
        within, outward = measured.cameras_within(INTERIOR_RADIUS)
        reason = f"{within:.0%} of the cameras are within {INTERIOR_RADIUS} radii"
        if within > 0:
            reason += f", {outward:.0%} of these look away from the centre"
        reason += f"; interior: over 50%, {LEAST_OUTWARD:.0%}"
        return INTERIOR if within > 0.5 and outward >= LEAST_OUTWARD else OBJECT, reason

    return decided("model.plan.region", choice, find, earlier.region)


def decide_background(choice: str, measured: Measurements, earlier: EarlierPlan) -> Decision:
    """The background without masks; a plain one is one colour along the borders of all images.

    The initial density of a plain one is low, and rays that nothing absorbs have its colour; otherwise the initial
    density is high, over black. A high density occludes the region of interest for many steps. With a low density, a
    backdrop that is not uniform would become part of the object.
    """

    def find() -> tuple[str, str]:
        colours = measured.border_colours(PLAIN_DIFFERENCE)
        is_plain = colours is not None and bool((colours == colours[0]).all())
        reason = f"the borders of the photographs have {'one colour' if is_plain else 'several colours'}"
        return PLAIN if is_plain else CONTRACTED, reason

    return decided("model.plan.background", choice, find, earlier.background)


def decide_start(
    conf: FastNeuSConfig, train: TrainConfig, measured: Measurements, earlier: EarlierPlan
) -> tuple[Decision, FusedDepth | None]:
    """Without masks: whether the surface starts from the fused depth maps of a plane sweep, and these if needed."""
    key = "model.open.depth_until"
    if earlier.start is not None:
        has_points = earlier.start.value == DEPTH_MAPS and earlier.step < conf.open.depth_until * train.end_iter
        return earlier.start, measured.depth(earlier.depth_views) if has_points else None
    if conf.open.depth_until == 0:
        return Decision(SPHERE, "", key, is_forced=True), None
    fused = measured.depth(0)
    if fused is None:
        return Decision(SPHERE, "too few pixels have a depth", key), None
    return Decision(DEPTH_MAPS, f"{fused.known:.0%} of the pixels of the photographs have a depth", key), fused


def decide_points(train: TrainConfig, measured: Measurements, masks: Decision) -> Decision:
    """Whether SfM points draw the surface, and where they are from."""
    key = "train.points_weight"
    if train.points_weight == 0:
        return Decision(NONE, "", key, is_forced=True)
    if measured.points is None and masks.value != NONE:
        return Decision(NONE, "the scene has none, and with masks none are triangulated")
    if measured.points is None:
        return Decision(NONE, "the scene has none, and none were triangulated", "dataset.triangulate_points")
    count = measured.points_in_region()
    reason = f"{count} in the cube around the region"
    if count < LEAST_REGION_POINTS:
        return Decision(NONE, f"{reason}, fewer than {LEAST_REGION_POINTS}", key)
    return Decision(TRIANGULATED if measured.are_points_derived else GIVEN, reason, key)


def decide_largest_inv_s(choice: float | Auto, train: TrainConfig, measured: Measurements, masks: Decision) -> Decision:
    """The bound of inv_s if the photographs show the rendered background outside the masks. Otherwise, the blurred
    edges of the object would be rendered over another colour than that of the photographs.
    """

    def find() -> tuple[float | None, str]:
        behind = measured.backdrop if masks.value == DERIVED else train.background_rgb
        if measured.shows_outside_masks(behind):
            return SHARPEST, "the photographs show the rendered colour outside the masks"
        return None, "outside the masks, the photographs show another colour than the rendered one"

    return decided("model.inside.largest_inv_s", choice, find)


def decide_pruning(choice: float | Auto, background: Decision, start: Decision) -> Decision:
    """The fraction of the training before cells are pruned, without masks."""

    def find() -> tuple[float, str]:
        if start.value == DEPTH_MAPS:
            return PRUNE_DEPTH, "the surface starts from depth maps"
        if background.value == PLAIN:
            return PRUNE_PLAIN, "a plain background cannot replace the region"
        return PRUNE_OPEN, "earlier, the background could replace the region"

    return decided("model.open.prune_from", choice, find)
