"""Compare renderings with their photographs: over the whole image, inside the mask, and by outline.

A mask selects pixels of a metric and does not affect rendering: superfluous geometry affects the metrics of the whole
image and the IoU. Also: validation images, photographs that are inconsistent with the others, and the score of a
training, by which a result that explains no photograph is found.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data.cameras import evenly_spaced
from data.errors import UserError, listed_views
from data.io.files import write_result
from data.io.images import write_image
from data.pixels import to_uint8
from data.scenes.backdrop import shows_outside_masks
from data.scenes.config import TEST, TRAINING, VALIDATION
from data.scenes.scene import Scene
from models.config.blocks import EXPOSURE
from models.plan import SCORED_FROM
from models.results.context import EvalContext
from models.results.experiment import Experiment, held_out_scene
from models.results.render import RenderedView, distance_picture, normal_picture, psnr
from models.training.checkpoint import Record

SSIM_RADIUS = 5  # radius of that window in scikit-image: pixels closer to the border are excluded
INSIDE_THRESHOLD = 0.5  # threshold of opacity and mask
LONGEST_VALIDATION = 800  # longer side of a validation image in pixels: sharp on a screen, and a few seconds to render
FADED_GREY = 0.5  # colour to which the background of a report is faded


@dataclass(frozen=True)
class ImageMetrics:
    """Metrics of one view, or means over several; None without reference."""

    psnr: float | None  # dB, over the whole image
    ssim: float | None  # the same
    psnr_mask: float | None  # dB, inside the mask
    ssim_mask: float | None  # inside the mask, with both images black outside
    iou: float | None  # IoU of mask and opacity


METRIC_NAMES = tuple(entry.name for entry in fields(ImageMetrics))


@dataclass(frozen=True)
class ViewMetrics(ImageMetrics):
    """The metrics of one test photograph."""

    view: str  # its name in `Scene.photographs`


def compare(rendered: RenderedView, photograph: np.ndarray, mask: np.ndarray | None) -> ImageMetrics:
    """The metrics of a rendering, for a photograph [h, w, 3] in [0, 1] and a mask [h, w] in [0, 1] or None."""
    whole = (_finite(psnr(rendered.rgb, photograph)), _ssim(rendered.rgb, photograph, None))
    if mask is None:
        return ImageMetrics(*whole, None, None, None)
    inside = mask > INSIDE_THRESHOLD
    if not inside.any():
        return ImageMetrics(*whole, None, None, _overlap(rendered.opacity > INSIDE_THRESHOLD, inside))
    of_object, of_photograph = (np.where(inside[..., None], picture, 0.0) for picture in (rendered.rgb, photograph))
    return ImageMetrics(
        *whole,
        psnr_mask=_finite(psnr(rendered.rgb[inside], photograph[inside])),
        ssim_mask=_ssim(of_object, of_photograph, inside),
        iou=_overlap(rendered.opacity > INSIDE_THRESHOLD, inside),
    )


def color_aligned(rgb: np.ndarray, photograph: np.ndarray, inside: np.ndarray | None) -> np.ndarray:
    """Colours [h, w, 3] after the affine map that fits those of the photograph [h, w, 3] best, by least squares.

    inside: bool [h, w], the pixels to fit; None for all. Results are clipped to [0, 1].
    """
    chosen = np.ones(rgb.shape[:2], bool) if inside is None else inside
    source = np.concatenate([rgb, np.ones_like(rgb[..., :1])], axis=-1).astype(np.float64)
    affine = np.linalg.lstsq(source[chosen], photograph[chosen].astype(np.float64), rcond=None)[0]
    return np.clip(source @ affine, 0.0, 1.0).astype(np.float32)


def exposure_aligned(
    context: EvalContext, rgb: np.ndarray, photograph: np.ndarray, inside: np.ndarray | None
) -> np.ndarray:
    """`color_aligned` if the model learns exposure, which renderings do not have; else the rendering itself."""
    return color_aligned(rgb, photograph, inside) if EXPOSURE in context.model.networks else rgb


def mean(figures: Sequence[ImageMetrics]) -> ImageMetrics:
    """The mean of each metric over the views that have it; None without views."""
    columns = {name: [getattr(view, name) for view in figures] for name in METRIC_NAMES}
    present = {name: [value for value in values if value is not None] for name, values in columns.items()}
    return ImageMetrics(**{name: float(np.mean(values)) if values else None for name, values in present.items()})


def mask_first(context: EvalContext, scene: Scene) -> bool:
    """Whether the metrics inside the mask are the primary ones: trained with masks on photographs with a real
    background.

    The metrics of the whole image are the primary ones if no masks were used in training, and if the photographs have
    the rendered background: the backdrop of derived masks, or a colour that they show.
    """
    uses_masks = scene.masks is not None and context.experiment.plan.uses_masks
    return uses_masks and not shows_outside_masks(scene, context.model.behind)


def greyed(photograph: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The photograph [h, w, 3] with the area outside the mask [h, w] in grey and faded; both in [0, 1]."""
    faded = 0.5 * (FADED_GREY + photograph.mean(axis=-1, keepdims=True)).repeat(3, axis=-1)
    return np.where((mask > INSIDE_THRESHOLD)[..., None], photograph, faded).astype(np.float32)


def text(figures: ImageMetrics, mask_first: bool) -> str:
    """The metrics as part of a sentence, the primary ones first."""
    whole = _pair("over the whole image", figures.psnr, figures.ssim)
    if figures.iou is None:
        return _pair("", figures.psnr, figures.ssim)
    inside = _pair("inside the mask", figures.psnr_mask, figures.ssim_mask)
    both = (inside, whole) if mask_first else (whole, inside)
    return ", ".join((*both, f"overlap (IoU) of opacity and mask {figures.iou:.3f}"))


def _pair(where: str, decibels: float | None, similarity: float | None) -> str:
    """`12.40 dB over the whole image (SSIM 0.512)`, without missing values."""
    figure = "no figure" if decibels is None else f"{decibels:.2f} dB"
    return f"{figure} {where}".rstrip() + ("" if similarity is None else f" (SSIM {similarity:.3f})")


def _ssim(rendered: np.ndarray, photograph: np.ndarray, inside: np.ndarray | None) -> float | None:
    """Mean structural similarity of two images [h, w, 3] in [0, 1], over the pixels `inside` [h, w] if given.

    None if no complete window fits.
    """
    from skimage.metrics import structural_similarity  # imported here because the import takes half a second

    if min(rendered.shape[:2]) <= 2 * SSIM_RADIUS:
        return None
    pair = (np.asarray(picture, np.float64) for picture in (rendered, photograph))
    # The Gaussian window of Wang et al., "Image quality assessment", TIP 13, 2004.
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    average, local = structural_similarity(*pair, channel_axis=2, full=True, **options)
    if inside is None:
        return float(average)
    whole = slice(SSIM_RADIUS, -SSIM_RADIUS)
    similarities = local[whole, whole][inside[whole, whole]]
    return float(similarities.mean()) if similarities.size else None


def _overlap(first: np.ndarray, second: np.ndarray) -> float | None:
    """IoU of two areas; None if both are empty."""
    either = np.count_nonzero(first | second)
    return np.count_nonzero(first & second) / either if either else None


def _finite(value: float) -> float | None:
    """The value; None for NaN, which JSON cannot represent."""
    return value if np.isfinite(value) else None


# Longer side of the renderings in pixels. The mean of the squares of 2,000 errors is known to a few per cent;
# BELOW_MEDIAN is a factor of four.
OUTLIER_SIDE = 64
BELOW_MEDIAN = 6.0  # dB: twice the error of the others
LEAST_TYPICAL = 5  # fewer views have no typical error


def view_psnrs(context: EvalContext) -> np.ndarray:
    """PSNR in dB of the training photographs, [V], on small images; inside the masks if that is the primary metric."""
    scene = context.experiment.scene
    is_inside = mask_first(context, scene)
    values = []
    for view in context.log.progress(range(scene.n_views), desc="photographs", leave=False):
        level = max(1, round(max(scene.size(view)) / OUTLIER_SIDE))
        photograph, mask = scene.rgb_image(view, level), scene.mask_image(view, level) if is_inside else None
        inside = np.ones(photograph.shape[:2], bool) if mask is None else mask > INSIDE_THRESHOLD
        rgb = exposure_aligned(context, context.render(*scene.rays(view, level)).rgb, photograph, inside)
        values.append(psnr(rgb[inside], photograph[inside]) if inside.any() else np.nan)
    return np.array(values)


def outliers(values: np.ndarray) -> np.ndarray:
    """The views [K] with a PSNR of `view_psnrs` far below the others, worst first."""
    if np.isfinite(values).sum() < LEAST_TYPICAL:
        return np.zeros(0, int)
    far = np.flatnonzero(values < np.nanmedian(values) - BELOW_MEDIAN)
    return far[np.argsort(values[far])]


def outlier_notes(context: EvalContext) -> tuple[str, ...]:
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


@dataclass(frozen=True)
class ValidationImage:
    """A rendered view of a photograph."""

    path: Path  # rendering, photograph and normals, stacked vertically
    view: int
    name: str  # that of the photograph
    group: str  # of the photograph
    c2w: np.ndarray  # [4, 4]
    rendered: RenderedView
    photograph: np.ndarray  # [h, w, 3] in [0, 1]
    figures: ImageMetrics


def picture_level(scene: Scene, view: int, level: int) -> float:
    """The reduction factor of a validation image: `level`; for 0, one that gives at most LONGEST_VALIDATION pixels."""
    return level or max(1.0, max(scene.size(view)) / LONGEST_VALIDATION)


def validate_image(context: EvalContext, view: int, level: int, validation: Scene | None = None) -> ValidationImage:
    """Render the view of a photograph and write it, with its normals and distances.

    `level`: `train.validate_resolution_level`. `validation`: the scene of the view; None for a training photograph.
    """
    experiment = context.experiment
    scene, group = (experiment.scene, TRAINING) if validation is None else (validation, VALIDATION)
    resolution_level = picture_level(scene, view, level)
    rendered = context.render(*scene.rays(view, resolution_level))
    photograph = scene.rgb_image(view, resolution_level)
    normals = normal_picture(rendered.normal, scene.c2w[view])
    name = f"{context.step:08d}_0_{view}" + ("" if validation is None else f"_{VALIDATION}")
    path = experiment.path("validations_fine", f"{name}.png")
    write_image(path, np.concatenate([to_uint8(rendered.rgb), to_uint8(photograph), normals]))
    write_image(experiment.path("normals", f"{name}.png"), normals)
    write_image(experiment.path("distances", f"{name}.png"), distance_picture(rendered.distance, rendered.opacity))
    distances = io.BytesIO()
    np.save(distances, rendered.distance)
    write_result(experiment.path("distances", f"{name}.npy"), distances.getvalue())
    compared = compare(rendered, photograph, scene.mask_image(view, resolution_level))
    shape = photograph.shape
    psnr = text(compared, mask_first(context, scene))
    context.log.info(f"{group} photograph {view}, {shape[1]}x{shape[0]}: PSNR {psnr}, {path}")
    return ValidationImage(path, view, scene.photographs[view], group, scene.c2w[view], rendered, photograph, compared)


JUDGED_FROM = 1000  # steps after which the final score must exceed that of blurred photographs
SCORED_VIEWS = 4  # evenly spaced
SCORED_PIXELS = 4096  # of each view, about: one second for a network; the mean over 16,000 pixels varies by 0.1 dB
SCORE_BLUR = 1 / 16  # standard deviation as a fraction of the longer side: keeps colours and layout, removes the object


@dataclass(frozen=True)
class ScoredViews:
    """The views with which a training is scored."""

    scene: Scene
    views: tuple[int, ...]
    group: str  # TRAINING or VALIDATION

    @property
    def validation(self) -> Scene | None:
        """The scene of validation photographs; None for training photographs."""
        return self.scene if self.group == VALIDATION else None

    def text(self) -> str:
        """Their number and group."""
        return f"{len(self.views)} {self.group} photographs"

    def level(self, context: EvalContext, view: int) -> int:
        """The resolution level with about SCORED_PIXELS pixels; 1 for Gaussians, which are wider in a smaller image."""
        return (
            1
            if context.model.shows_pictures
            else max(1, round((np.prod(self.scene.size(view)) / SCORED_PIXELS) ** 0.5))
        )

    def score(self, context: EvalContext) -> float:
        """Mean PSNR of the renderings, in dB; inside the masks if that is the primary metric.

        See `exposure_aligned` for photographs whose exposure is learned or unknown.
        """
        is_inside = mask_first(context, self.scene)

        def rendering(view: int, level: int) -> RenderedView:
            seen = context.render(*self.scene.rays(view, level))
            photograph, mask = self.scene.rgb_image(view, level), self.scene.mask_image(view, level)
            inside = mask > INSIDE_THRESHOLD if is_inside and mask is not None else None
            return replace(seen, rgb=exposure_aligned(context, seen.rgb, photograph, inside))

        return self._mean(context, rendering)

    def measured(self, context: EvalContext) -> float | None:
        """The score of a state; None before step SCORED_FROM, or if no view can be scored."""
        score = self.score(context) if context.step >= SCORED_FROM else np.inf
        return score if np.isfinite(score) else None

    def failure(self, context: EvalContext, score: float) -> str:
        """Why the result of a finished training is unusable, by its score; "" if it is usable."""
        if context.step < JUDGED_FROM or score >= (blurred := self.blurred(context)):
            return ""
        return (
            f"the renderings of {self.text()} reach {score:.1f} dB, less than blurred photographs ({blurred:.1f} dB): "
            "the training found no surface that explains the photographs"
        )

    def blurred(self, context: EvalContext) -> float:
        """The score of the photographs, blurred by SCORE_BLUR."""

        def rendering(view: int, level: int) -> RenderedView:
            photograph = self.scene.rgb_image(view, level)
            soft = cv2.GaussianBlur(photograph, (0, 0), SCORE_BLUR * max(photograph.shape[:2]))
            flat = np.zeros(photograph.shape[:2], np.float32)
            return RenderedView(soft, np.zeros_like(photograph), flat, flat)

        return self._mean(context, rendering)

    def _mean(self, context: EvalContext, rendering: Any) -> float:
        """Mean PSNR of the images that `rendering` returns for a view at a level."""
        is_inside = mask_first(context, self.scene)
        values = []
        for view in self.views:
            level = self.level(context, view)
            mask = self.scene.mask_image(view, level)
            compared = compare(rendering(view, level), self.scene.rgb_image(view, level), mask)
            values.append(compared.psnr_mask if is_inside and compared.psnr_mask is not None else compared.psnr)
        finite = [value for value in values if value is not None and np.isfinite(value)]
        return float(np.mean(finite)) if finite else np.inf


def scored_views(experiment: Experiment) -> ScoredViews:
    """Validation photographs; training photographs if there are no usable ones."""
    try:
        validation = held_out_scene(experiment, VALIDATION)
    except UserError:
        validation = None
    scene, group = (experiment.scene, TRAINING) if validation is None else (validation, VALIDATION)
    return ScoredViews(scene, tuple(int(view) for view in evenly_spaced(scene.n_views, SCORED_VIEWS)), group)


def deciding_group(record: Record, has_test: bool) -> str | None:
    """The group whose PSNR decided a training; None if nothing was decided."""
    return (record.group or (TEST if has_test else TRAINING)) if record.best_step else None
