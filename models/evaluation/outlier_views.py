"""Detect training images that the model reproduces worse than the others: wrong poses, other objects, blur."""

from __future__ import annotations

import numpy as np

from data.errors import listed_views
from models.evaluation.image_metrics import HALF, exposure_aligned, mask_first, psnr
from models.results.context import EvalContext

# Longer side of the renderings in pixels. The mean of the squares of 2,000 errors is known to a few per cent;
# BELOW_MEDIAN is a factor of four.
SIDE = 64
BELOW_MEDIAN = 6.0  # dB: twice the error of the others
LEAST_VIEWS = 5  # fewer views have no typical error


def view_psnrs(context: EvalContext) -> np.ndarray:
    """PSNR in dB of the training photographs, [V], on small images; inside the masks if that is the primary metric."""
    scene = context.experiment.scene
    is_inside = mask_first(context, scene)
    found = []
    for view in context.log.progress(range(scene.n_views), desc="photographs", leave=False):
        level = max(1, round(max(scene.size(view)) / SIDE))
        photograph, mask = scene.rgb_image(view, level), scene.mask_image(view, level) if is_inside else None
        inside = np.ones(photograph.shape[:2], bool) if mask is None else mask > HALF
        shown = exposure_aligned(context, context.render(*scene.rays(view, level)).rgb, photograph, inside)
        found.append(psnr(shown[inside], photograph[inside]) if inside.any() else np.nan)
    return np.array(found)


def outliers(values: np.ndarray) -> np.ndarray:
    """The views [K] with a PSNR of `view_psnrs` far below the others, worst first."""
    if np.isfinite(values).sum() < LEAST_VIEWS:
        return np.zeros(0, int)
    far = np.flatnonzero(values < np.nanmedian(values) - BELOW_MEDIAN)
    return far[np.argsort(values[far])]


def notes(context: EvalContext) -> tuple[str, ...]:
    """A sentence with the inconsistent photographs; empty if there are none."""
    values = view_psnrs(context)
    far = outliers(values)
    if not len(far):
        return ()
    named = listed_views(far, context.experiment.scene.photographs)
    return (
        (
            f"photographs that are inconsistent with the others: {named} ({values[far[0]]:.1f} dB, the median is "
            f"{np.nanmedian(values):.1f} dB): check them, and leave out those that are blurred, have a wrong pose "
            "or show another object (dataset.train_views)"
        ),
    )
