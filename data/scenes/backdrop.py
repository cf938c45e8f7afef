"""Masks of photographs in front of a backdrop of one colour: rendered images, and objects that were cut out.

Without masks, a thin or concave object in front of such a backdrop may be replaced by a background that differs from
camera to camera. Pixels with the colour of the backdrop are outside the object, so masks can be derived from them. If
the exposure varies, the backdrop has another colour in each photograph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from data.parsed_scene import MASK_HALF
from data.pixels import to_float
from data.scenes.scene import Scene

# Difference from the backdrop's colour, in any channel: above the noise of JPEG, below what a dark surface reflects.
SAME_COLOUR = 3.5 / 255
LEAST_OF_BORDERS = 0.9  # fraction of the pixels along the images' borders that a backdrop fills
# Fractions of an image. Smaller enclosed regions of the backdrop's colour are highlights or shadows of the object;
# smaller parts beside it are noise.
LEAST_HOLE, LEAST_PART = 1e-3, 1e-4
# An outline is an edge where the colour differs by EDGE_CONTRAST from the backdrop within EDGE_REACH pixels, which
# covers the noise of JPEG around an edge; the outline of a bright spot or of a gradient is not an edge.
EDGE_CONTRAST, EDGE_REACH = 24 / 255, 8
LEAST_EDGES = 0.6  # fraction of the outlines that are edges
MOST_EMPTY_VIEWS = 0.1  # fraction of the images without an object
MOST_SATURATED = 0.5  # fraction of the images that are left out
SATURATED = 250 / 255  # an overexposed backdrop, from which an overexposed object cannot be told
PLAIN_STEP = 8 / 255  # tolerance of a uniform background: compression, lighting
PLAIN_SHARE = 0.95  # fraction of the pixels outside the masks; the rest are soft edges
PLAIN_STRIDE = 4  # subsampling of rows and columns


@dataclass(frozen=True)
class DerivedMasks:
    """Masks of V of the images."""

    views: tuple[int, ...]  # indices of the images
    masks: tuple[np.ndarray, ...]  # V x uint8 [H, W]
    colour: np.ndarray  # [3] in [0, 1], the mean of the backdrop in these images
    note: str


def derived_masks(images: Sequence[np.ndarray]) -> DerivedMasks | None:
    """The masks of training images [H, W, 3] in front of a backdrop of one colour; None if there is none.

    If the exposure varies, images with a saturated backdrop are left out.
    """
    colours = backdrop_colours(images)
    if colours is None:
        return None
    is_used = (colours == colours[0]).all() | (colours.max(axis=1) < SATURATED)
    if np.mean(~is_used) > MOST_SATURATED:
        return None
    views = tuple(map(int, np.flatnonzero(is_used)))
    masks = tuple(backdrop_mask(images[view], colours[view]) for view in views)
    if not shows_object([images[view] for view in views], masks, colours[is_used]):
        return None
    colour, overexposed = colours[is_used].mean(axis=0), np.count_nonzero(~is_used)
    note = (
        f"masks: derived from the uniform backdrop of the photographs, RGB {' '.join(f'{c:.0f}' for c in 255 * colour)}"
    )
    if overexposed:
        note += f"; photographs left out for their overexposed backdrop: {overexposed}"
    return DerivedMasks(views, masks, colour, f"{note}; dataset.masks_from_backdrop = False trains without masks")


def held_out_masks(
    images: Sequence[np.ndarray], training: Sequence[np.ndarray], colour: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The masks of held-out images; training and colour: the images and the `DerivedMasks.colour` of the training."""
    together = backdrop_colours([*training, *images])
    colours = np.tile(colour, (len(images), 1)) if together is None else together[len(training) :]
    return tuple(backdrop_mask(image, own) for image, own in zip(images, colours, strict=True))


def shows_outside_masks(scene: Scene, colour: np.ndarray | None) -> bool:
    """Whether a scene with masks shows the colour [3] outside them, None for black: that of the backdrop from which the
    masks were derived, or the colour of nearly all pixels. False if there are no such pixels.
    """
    if colour is not None and scene.backdrop is not None and np.array_equal(colour, scene.backdrop):
        return True
    colour = np.zeros(3, np.float32) if colour is None else colour.reshape(3)
    plain, count = 0, 0
    for image, mask in zip(scene.images, scene.masks or (), strict=True):
        image, mask = (whole[::PLAIN_STRIDE, ::PLAIN_STRIDE] for whole in (image, mask))
        outside = to_float(image[mask <= MASK_HALF])
        plain += int(np.count_nonzero(np.abs(outside - colour).max(axis=-1) <= PLAIN_STEP))
        count += len(outside)
    return count > 0 and plain >= PLAIN_SHARE * count


def backdrop_colours(images: Sequence[np.ndarray], tolerance: float = SAME_COLOUR) -> np.ndarray | None:
    """The colour of the backdrop in each of V images [H, W, 3], uint8 or uint16: [V, 3] in [0, 1]; None without one.

    A backdrop fills nearly all of the borders with one colour: the same in all images, or else, where the exposure
    varies, one colour in each.
    """
    borders = [to_float(np.concatenate(_edges(image))) for image in images]
    common = np.median(np.concatenate(borders), axis=0)
    for colours in ([common] * len(images), [np.median(border, axis=0) for border in borders]):
        differences = [np.abs(border - colour).max(axis=1) for border, colour in zip(borders, colours, strict=True)]
        if np.mean(np.concatenate(differences) < tolerance) >= LEAST_OF_BORDERS:
            return np.array(colours, np.float32)
    return None


def backdrop_mask(image: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """The mask uint8 [H, W] of an image [H, W, 3] with a backdrop of `colour` [3]: 255 on the object, else 0.

    The backdrop consists of the regions of this colour that touch the border, and of enclosed ones larger than a
    highlight.
    """
    is_similar = np.abs(to_float(image) - colour).max(axis=2) < SAME_COLOUR
    is_backdrop = _regions(is_similar, LEAST_HOLE, at_border=True)
    return _regions(~is_backdrop, LEAST_PART, at_border=False).astype(np.uint8) * 255


def shows_object(images: Sequence[np.ndarray], masks: Sequence[np.ndarray], colours: np.ndarray) -> bool:
    """Whether the masks of `backdrop_mask` outline an object, not a part of a backdrop of several colours.

    Nearly all images must show an object, and most of the outlines must be edges.
    """
    if np.mean([not mask.any() for mask in masks]) > MOST_EMPTY_VIEWS:
        return False
    contrasts, window = [], np.ones((2 * EDGE_REACH + 1,) * 2, np.uint8)
    for image, mask, colour in zip(images, masks, colours, strict=True):
        is_outline = cv2.erode(mask, np.ones((3, 3), np.uint8), borderValue=(255,)) < mask
        difference = np.abs(to_float(image) - colour).max(axis=2)
        contrasts.append(cv2.dilate(difference, window)[is_outline])  # the largest within EDGE_REACH pixels
    return bool((np.concatenate(contrasts) > EDGE_CONTRAST).mean() >= LEAST_EDGES)


def _edges(image: np.ndarray) -> tuple[np.ndarray, ...]:
    """The four borders of an image [H, W, 3], each [N, 3]."""
    return image[0], image[-1], image[:, 0], image[:, -1]


def _regions(is_set: np.ndarray, least: float, at_border: bool) -> np.ndarray:
    """The 4-connected regions of bool [H, W] with `least` of its pixels; with `at_border` also those at the border."""
    count, labels, statistics, _ = cv2.connectedComponentsWithStats(is_set.astype(np.uint8), connectivity=4)
    is_chosen = statistics[:, cv2.CC_STAT_AREA] >= least * is_set.size
    if at_border:
        is_chosen[np.concatenate(_edges(labels))] = True
    is_chosen[0] = False  # the unset pixels
    return is_chosen[labels] if count > 1 else np.zeros_like(is_set)
