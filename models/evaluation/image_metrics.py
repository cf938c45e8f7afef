"""How a rendering compares with its photograph: over the whole image, inside the mask, and their outlines.

A mask decides what is counted and never what is rendered: what a rendering shows off the object counts in the whole
picture's figures and in the overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from data.io.images import to_float
from data.parsed_scene import MASK_HALF
from data.scenes.scene import Scene
from models.results.context import EvalContext
from models.results.render import RenderedView, psnr

SSIM_SIGMA = 1.5  # of the Gaussian window, in pixels (Wang et al., "Image quality assessment", TIP 13, 2004)
SSIM_RADIUS = 5  # that window's, as scikit-image cuts it off: pixels nearer to the border have no whole window
HALF = 0.5  # of opacity, and of a mask: more is the object
PLAIN_STEP = 8 / 255  # what a plain background may differ from its colour by: compression, a lamp
PLAIN_SHARE = 0.95  # of the pixels off the masks; the rest are soft edges
PLAIN_STRIDE = 4  # every so many-th pixel of a row and a column is looked at
GREY = 0.5  # what the background of a report is half faded to


@dataclass(frozen=True)
class ImageMetrics:
    """Of one view, or the mean of several; None where there is nothing to compare, or no difference to measure."""

    psnr: float | None  # dB, over the whole image
    ssim: float | None  # likewise
    psnr_mask: float | None  # dB, inside the mask
    ssim_mask: float | None  # inside the mask, with both pictures black off it
    iou: float | None  # overlap of mask and opacity: pixels in both by pixels in either


NAMES = tuple(entry.name for entry in fields(ImageMetrics))


@dataclass(frozen=True)
class ViewMetrics(ImageMetrics):
    """Of one held-out photograph."""

    view: str  # its file name


def compare(rendered: RenderedView, photograph: np.ndarray, mask: np.ndarray | None) -> ImageMetrics:
    """The figures of a rendering, for a photograph [h, w, 3] in [0, 1] and a mask [h, w] in [0, 1] or None."""
    whole = (_finite(psnr(rendered.rgb, photograph)), _ssim(rendered.rgb, photograph, None))
    if mask is None:
        return ImageMetrics(*whole, None, None, None)
    inside = mask > HALF
    if not inside.any():
        return ImageMetrics(*whole, None, None, _overlap(rendered.opacity > HALF, inside))
    object_only = [np.where(inside[..., None], picture, 0.0) for picture in (rendered.rgb, photograph)]
    return ImageMetrics(
        *whole,
        psnr_mask=_finite(psnr(rendered.rgb[inside], photograph[inside])),
        ssim_mask=_ssim(*object_only, inside),
        iou=_overlap(rendered.opacity > HALF, inside),
    )


def mean(figures: Sequence[ImageMetrics]) -> ImageMetrics:
    """The mean of each figure over the views that have it; of no views at all, none."""
    columns = {name: [getattr(view, name) for view in figures] for name in NAMES}
    present = {name: [value for value in values if value is not None] for name, values in columns.items()}
    return ImageMetrics(**{name: float(np.mean(values)) if values else None for name, values in present.items()})


def mask_counts_first(scene: Scene, mask_weight: float, background_rgb: np.ndarray | None) -> bool:
    """Whether the figures inside the mask come first: trained by masks, on photographs with a background of their own.

    Over the whole image they come first where no mask took part in training, and where the photographs lie before
    what the rendering has behind everything, `background_rgb` [3] or black, so that all of a rendering can be right.
    """
    return scene.masks is not None and mask_weight > 0 and not _is_before(scene, background_rgb)


def mask_first(context: EvalContext, scene: Scene) -> bool:
    """`mask_counts_first` of a trained model on the photographs of a scene."""
    return mask_counts_first(scene, context.experiment.conf.train.mask_weight, context.background_rgb)


def _is_before(scene: Scene, background_rgb: np.ndarray | None) -> bool:
    """Whether the photographs off their masks show `background_rgb` and little else."""
    colour = np.zeros(3, np.float32) if background_rgb is None else background_rgb.reshape(3)
    plain, count = 0, 0
    for image, mask in zip(scene.images, scene.masks, strict=True):
        image, mask = (whole[::PLAIN_STRIDE, ::PLAIN_STRIDE] for whole in (image, mask))
        behind = to_float(image[mask <= MASK_HALF])
        plain += np.count_nonzero(np.abs(behind - colour).max(axis=-1) <= PLAIN_STEP)
        count += len(behind)
    return plain >= PLAIN_SHARE * count


def greyed(photograph: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The photograph [h, w, 3] with what is off the mask [h, w] colourless and half faded; both in [0, 1]."""
    faded = 0.5 * (GREY + photograph.mean(axis=-1, keepdims=True)).repeat(3, axis=-1)
    return np.where((mask > HALF)[..., None], photograph, faded).astype(np.float32)


def text(figures: ImageMetrics, mask_first: bool) -> str:
    """The figures as a part of a sentence, what counts first in front."""
    whole = _pair("over the whole image", figures.psnr, figures.ssim)
    if figures.iou is None:
        return _pair("", figures.psnr, figures.ssim)
    inside = _pair("inside the mask", figures.psnr_mask, figures.ssim_mask)
    both = (inside, whole) if mask_first else (whole, inside)
    return ", ".join((*both, f"overlap (IoU) of opacity and mask {figures.iou:.3f}"))


def _pair(where: str, decibels: float | None, similarity: float | None) -> str:
    """`12.40 dB over the whole image (SSIM 0.512)`, as far as there is something to tell."""
    told = "no figure" if decibels is None else f"{decibels:.2f} dB"
    return f"{told} {where}".rstrip() + ("" if similarity is None else f" (SSIM {similarity:.3f})")


def _ssim(rendered: np.ndarray, photograph: np.ndarray, inside: np.ndarray | None) -> float | None:
    """Structural similarity of two pictures [h, w, 3] in [0, 1]: its mean, over the pixels `inside` [h, w] if given.

    None where no whole window fits.
    """
    from skimage.metrics import structural_similarity  # half a second, which a training without pictures need not wait

    if min(rendered.shape[:2]) <= 2 * SSIM_RADIUS:
        return None
    pair = (np.asarray(picture, np.float64) for picture in (rendered, photograph))
    options = {"gaussian_weights": True, "sigma": SSIM_SIGMA, "use_sample_covariance": False, "data_range": 1.0}
    average, local = structural_similarity(*pair, channel_axis=2, full=True, **options)
    if inside is None:
        return float(average)
    whole = slice(SSIM_RADIUS, -SSIM_RADIUS)
    seen = local[whole, whole][inside[whole, whole]]
    return float(seen.mean()) if seen.size else None


def _overlap(first: np.ndarray, second: np.ndarray) -> float | None:
    """Pixels in both by pixels in either, of two areas; None where both are empty."""
    either = np.count_nonzero(first | second)
    return np.count_nonzero(first & second) / either if either else None


def _finite(value: float) -> float | None:
    """The value; None for an infinite one, which JSON has no word for."""
    return value if np.isfinite(value) else None
