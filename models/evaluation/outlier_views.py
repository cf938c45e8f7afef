"""Training images that the model does not reproduce as well as the others: a wrong pose, another object, or blur."""

from __future__ import annotations

import numpy as np

from data.errors import listed_views
from models.evaluation.image_metrics import HALF, mask_first, psnr
from models.results.context import EvalContext

SIDE = 96  # pixels of the longer side of what is rendered: enough to tell a wrong picture from a right one
BELOW_MEDIAN = 6.0  # dB: an error twice as large as that of the others
LEAST_VIEWS = 5  # fewer have no usual error


def view_psnrs(context: EvalContext) -> np.ndarray:
    """PSNR in dB of the photographs trained on, [V], on small pictures; inside the masks where these count first."""
    scene = context.experiment.scene
    is_inside = mask_first(context, scene)
    found = []
    for view in context.log.progress(range(scene.n_views), desc="photographs", leave=False):
        level = max(1, round(max(scene.size(view)) / SIDE))
        shown, photograph = context.render(*scene.rays(view, level)).rgb, scene.rgb_image(view, level)
        mask = scene.mask_image(view, level) if is_inside else None
        inside = np.ones(photograph.shape[:2], bool) if mask is None else mask > HALF
        found.append(psnr(shown[inside], photograph[inside]) if inside.any() else np.nan)
    return np.array(found)


def outliers(values: np.ndarray) -> np.ndarray:
    """The views [K] whose PSNR of `view_psnrs` lies far below the others', the worst first."""
    if np.isfinite(values).sum() < LEAST_VIEWS:
        return np.zeros(0, int)
    far = np.flatnonzero(values < np.nanmedian(values) - BELOW_MEDIAN)
    return far[np.argsort(values[far])]


def notes(context: EvalContext) -> tuple[str, ...]:
    """A sentence that names the photographs that never agree; none where all do."""
    values = view_psnrs(context)
    far = outliers(values)
    if not len(far):
        return ()
    named = listed_views(far, context.experiment.scene.image_names)
    return (
        (
            f"photographs that are inconsistent with the others: {named} ({values[far[0]]:.1f} dB, the median is "
            f"{np.nanmedian(values):.1f} dB): check them, and leave out those that are blurred, have a wrong pose "
            "or show another object (dataset.train_views)"
        ),
    )
