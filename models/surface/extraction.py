"""Errors of an extraction that finds no surface, with their usual causes."""

from __future__ import annotations

import numpy as np

SMALLEST_RESOLUTION = 2  # one cell: the two corners of the box


class EmptySurfaceError(Exception):
    """There is no surface to extract; the message gives the usual causes. Exit status 2; during a training it
    continues.
    """


def no_surface(kind: str) -> str:
    """The message for a model type without a surface."""
    return (
        f"No surface: a model of type {kind} has none, so there is no mesh; --mode validate_image and "
        "interpolate render it, and train.val_mesh_freq = 0 writes none during training."
    )


def require_crossing(lowest: float, highest: float, threshold: float, quantity: str) -> None:
    """Raises EmptySurfaceError unless a field of this range is finite and lies on both sides of the threshold."""
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise not_finite(quantity)
    if not lowest < -threshold < highest:
        raise EmptySurfaceError(no_crossing(lowest, highest, threshold, quantity))


def not_finite(quantity: str) -> EmptySurfaceError:
    """The error for a field with NaN or infinity."""
    return EmptySurfaceError(
        f"No surface: {quantity} is not finite everywhere inside the bounds, so the training diverged; resume "
        "from an earlier checkpoint or train again with a lower learning rate."
    )


def no_crossing(lowest: float, highest: float, threshold: float, quantity: str) -> str:
    """The message for a field of this range."""
    return (
        f"No surface: {quantity} ranges from {lowest:.4g} to {highest:.4g} inside the bounds and never crosses "
        f"{0.0 - threshold:.4g}. Usual causes: the training is too short or has collapsed (check the validation "
        "images), the object lies outside the region of interest (--mode inspect draws it), or "
        "--mcube_threshold is too far from its default."
    )
