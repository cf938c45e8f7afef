"""The difference of an image and a photograph: absolute error and structural dissimilarity.

(1 - share) mean |x - y| + share (1 - mean SSIM), as in 3D Gaussian Splatting (arXiv 2308.04079, eq. 7). SSIM uses
windows of 11 pixels with a Gaussian of 1.5 (Wang et al., TIP 13, 2004) and zero padding. Differentiable once, with
respect to the image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.machine.backend import jt
from models.ops.source import Kernel, Source
from models.structs import Var

RADIUS, SIGMA = 5, 1.5  # size of the window, pixels
STABLE_MEAN, STABLE_VARIANCE = 0.01**2, 0.03**2  # for images in [0, 1]
WINDOW = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / SIGMA) ** 2)
WINDOW = (WINDOW / WINDOW.sum()).astype(np.float32)


@dataclass(frozen=True)
class Pictures:
    """The sizes and constants that reference and native source share."""

    width: int
    share: float  # weight of the dissimilarity


_STABLE = {"STABLE_MEAN": STABLE_MEAN, "STABLE_VARIANCE": STABLE_VARIANCE}
SOURCE = Source.of("picture_loss.h", Pictures, RADIUS=RADIUS, SIGMA=SIGMA, **_STABLE)


def _reference(picture: Var, photograph: Var, share: float) -> Var:
    """The loss [1] of images [H, W, 3]."""
    maps = [_blurred(value) for value in (picture, photograph, picture.sqr(), photograph.sqr(), picture * photograph)]
    mean_x, mean_y, xx, yy, xy = maps
    between = 2.0 * (xy - mean_x * mean_y) + STABLE_VARIANCE
    each = xx - mean_x.sqr() + yy - mean_y.sqr() + STABLE_VARIANCE
    likeness = (2.0 * mean_x * mean_y + STABLE_MEAN) / (mean_x.sqr() + mean_y.sqr() + STABLE_MEAN) * between / each
    return (picture - photograph).abs().mean() * (1.0 - share) + (1.0 - likeness.mean()) * share


def _blurred(values: Var) -> Var:
    """[H, W, 3] filtered with the window."""
    height, width, _ = values.shape
    padded = jt.nn.pad(values.permute(2, 0, 1), [RADIUS] * 4)
    rows = sum(padded[:, k : k + height] * float(weight) for k, weight in enumerate(WINDOW))
    return sum(rows[:, :, k : k + width] * float(weight) for k, weight in enumerate(WINDOW)).permute(1, 2, 0)


def _native(picture: Var, photograph: Var, share: float) -> Var:
    """One operation, which computes the loss and its gradient."""
    layout = Pictures(picture.shape[1], share)
    return SOURCE.with_slopes("picture_loss", layout, [(1,), picture.shape], [picture, photograph])


picture_loss = Kernel(_reference, cpu=_native, cuda=_native)
