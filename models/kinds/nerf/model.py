"""NeRF as a kind of model: two networks under their published names, its objective, its pictures, its surface."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.rays import PixelBatch, Rays
from models.config.blocks import TrainConfig
from models.kinds.nerf.outputs import Comparison
from models.kinds.nerf.renderer import NeRFRenderer
from models.kinds.nerf.terms import radiance_terms
from models.kinds.pixels import PixelModel, photograph, upload
from models.kinds.protocol import LevelSet, Moment, Noise, Objective
from models.kinds.terms import masked_mean, masked_psnr
from models.machine.backend import jt
from models.ops.elementwise import softplus
from models.rendering.sections import SMALLEST_SLOPE, SURFACE_DENSITY, expected_distance
from models.structs import RayView, Var

NORMAL_STEP = 0.01  # working-frame units to either side of a surface, for the slope of the density there
SMALLEST_DENSITY = 1e-12  # what is less dense is equally empty


class NeRFModel(PixelModel):
    """A `models.kinds.protocol.Model`."""

    def __init__(self, renderer: NeRFRenderer, train: TrainConfig) -> None:
        self.renderer = renderer
        self.train = train

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Coarse, then fine: the order in which the published code optimises them."""
        return {"nerf_coarse": self.renderer.fields.coarse, "nerf_fine": self.renderer.fields.fine}

    @property
    def level_set(self) -> LevelSet:
        """A level set of the fine network's density."""
        return LevelSet(self._emptiness, SURFACE_DENSITY, "minus the density", evened=_raw, color=self._colors)

    def sharpness(self) -> None:
        """A density has none."""

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """A place within its stratum for each coarse depth and each fine quantile."""
        conf = self.renderer.conf
        if conf.perturb == 0.0:
            return None
        return {
            "coarse": generator.random((entries, conf.n_samples), dtype=np.float32),
            "fine": generator.random((entries, conf.n_importance), dtype=np.float32),
        }

    def settle(self, batch: PixelBatch, noise: Noise | None, moment: Moment) -> None:
        """Nothing: the coarse pass is differentiated, and the fine depths follow from it."""

    def objective(self, batch: PixelBatch, noise: Noise | None, moment: Moment, settled: None = None) -> Objective:
        """The terms of `kinds.nerf.terms`, weighted as the conf says."""
        output = self.renderer.render(upload(batch.rays), noise, moment.background_rgb)
        seen = Comparison(output, *photograph(batch, self.train))
        return Objective(radiance_terms(seen, self.train), seen)

    def scalars(self, output: Comparison, losses: Mapping[str, Var]) -> dict[str, Var]:
        """The losses, the PSNR of both passes and the mean of the largest weight."""
        render, target, mask = output.render, output.target, output.mask
        return {
            "Loss/loss": losses["total"],
            "Loss/color_loss": losses["fine"],
            "Loss/coarse_loss": losses["coarse"],
            "Loss/mask_loss": losses["mask"],
            "Statistics/weight_max": masked_mean(render.weights.max(dim=1, keepdims=True), mask),
            "Statistics/psnr": masked_psnr(render.rgb, target, mask),
            "Statistics/coarse_psnr": masked_psnr(render.coarse_rgb, target, mask),
        }

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The PSNR of the coarse pass."""
        return f"coarse {scalars['Statistics/coarse_psnr']:.2f}"

    def view(self, rays: Rays, moment: Moment) -> RayView:
        """The fine pass; its normals are those of the density where half of a ray's light is absorbed."""
        with jt.no_grad():
            output = self.renderer.render(upload(rays), None, moment.background_rgb)
        weights, depths, opacity = (value.numpy() for value in (output.weights, output.depths, output.opacity))
        distance = expected_distance(weights, depths, opacity)
        half = np.argmax(np.cumsum(weights, axis=1) >= 0.5 * opacity, axis=1)[:, None]
        normal = self._normals(rays.origins + rays.directions * np.take_along_axis(depths, half, axis=1)) * opacity
        return RayView(output.rgb.numpy(), normal.astype(np.float32), distance, np.clip(opacity, 0.0, 1.0))

    def view_fully(self, rays: Rays, moment: Moment) -> RayView:
        """The same: nothing is spared."""
        return self.view(rays, moment)

    def _raw_density(self, points: np.ndarray) -> Var:
        """The fine network's density [P, 1] before its activation; no view direction has a part in it."""
        with jt.no_grad():
            return self.renderer.fields.fine(jt.array(points), jt.zeros((len(points), 3)))[0]

    def _emptiness(self, points: np.ndarray) -> np.ndarray:
        """Minus the density at points [P, 3], [P, 1]."""
        return -softplus(self._raw_density(points)).numpy()

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """RGB [P, 3] of the fine network at points seen against their normals [P, 3]."""
        with jt.no_grad():
            return self.renderer.fields.fine(jt.array(points), -jt.array(normals))[1].sigmoid().numpy()

    def _normals(self, points: np.ndarray) -> np.ndarray:
        """Unit normals [P, 3], against the slope of the density, by central differences.

        The slope of the raw output has the same direction and does not vanish where the density does.
        """
        steps = NORMAL_STEP * np.concatenate([np.eye(3), -np.eye(3)])
        around = (points[None] + steps[:, None]).astype(np.float32).reshape(-1, 3)
        raw = self._raw_density(around).numpy().reshape(2, 3, -1)
        slope = (raw[1] - raw[0]).T
        return slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), SMALLEST_SLOPE)


def _raw(emptiness: np.ndarray) -> np.ndarray:
    """What the network gives before its activation, negated: the inverse of softplus, down to SMALLEST_DENSITY."""
    density = np.maximum(-emptiness, SMALLEST_DENSITY)
    return -(density + np.log(-np.expm1(-density)))
