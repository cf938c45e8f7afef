"""What a kind of model is to the trainer and to the results: `NeuSRenderer` or `NeRFRenderer`, chosen once by the conf.

R rays. Nothing beyond this file and its two implementations asks which of them it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from data.rays import Rays
from models.backend import jt
from models.config import TrainConfig
from models.rendering.losses import BatchCounts
from models.structs import Noise, Output, RayView, Terms, Var

SEEN_OPACITY = 1e-2  # below it a ray's distance is the mean of next to nothing


@dataclass(frozen=True)
class SurfaceField:
    """The field whose level set is the surface; minus the field is marched, at a threshold."""

    outward: Callable[[np.ndarray], np.ndarray]  # points float32 [P, 3] -> [P, 1], growing outwards
    threshold: float  # of minus the field, where the user gives none
    quantity: str  # what the field is, for messages


@dataclass(frozen=True)
class Placement:
    """What of a rendering of some rays is settled, without gradients, before it is differentiated."""

    depths: np.ndarray | None  # [R, N]; None where nothing is settled beforehand
    near: float  # sections that the eikonal loss looks at


class Renderer(Protocol):
    """A model with its networks. Holds no state besides them; all randomness is passed in as numbers."""

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks by the names they have in checkpoints, in the order their parameters are optimised in."""

    @property
    def surface(self) -> SurfaceField:
        """What a mesh is made of."""

    def draw_noise(self, rays: int, generator: np.random.Generator) -> Noise | None:
        """The jitter of one batch; None, without a draw, where the conf asks for none."""

    def place(self, rays: Rays, noise: Noise | None) -> Placement:
        """What `render` can be given beforehand, and what the losses of a whole batch are divided by."""

    def render(
        self,
        rays: Rays,
        noise: Noise | None = None,
        cos_anneal_ratio: float = 1.0,
        background_rgb: np.ndarray | None = None,
        depths: Var | None = None,
    ) -> Output:
        """Colours and all that the losses need; `background_rgb` [3] is behind everything, None for black.

        depths: of `place`, for the same rays and noise; None to place them now.
        """

    def loss(
        self, output: Output, target: Var, mask: Var, conf: TrainConfig, counts: BatchCounts | None = None
    ) -> Terms:
        """The training loss and its terms, for photographs `target` [R, 3] and a 0/1 `mask` [R, 1]."""

    def scalars(self, output: Output, terms: Terms, target: Var, mask: Var) -> dict[str, Var]:
        """What is plotted of a step, each of shape [1], by its TensorBoard name."""

    def remark(self, scalars: dict[str, float]) -> str:
        """What a progress bar says of the values of `scalars`, besides loss and PSNR."""

    def view(self, rays: Rays, cos_anneal_ratio: float, background_rgb: np.ndarray | None) -> RayView:
        """What R rays show, without jitter."""

    def sharpness(self) -> float | None:
        """inv_s of a surface; None for what has none."""
