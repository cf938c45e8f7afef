"""NeuS as a kind of model: its networks under their published names, its objective, its pictures, its surface."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.rays import PixelBatch, Rays
from models.config.blocks import TrainConfig
from models.kinds.neus.outputs import Comparison, ray_view
from models.kinds.neus.renderer import NeuSRenderer
from models.kinds.neus.sparing import sparing_view
from models.kinds.neus.terms import TERMS, TermOf, terms_of
from models.kinds.pixels import PixelModel, photograph, upload
from models.kinds.protocol import LevelSet, Moment, Noise, Objective
from models.kinds.terms import masked_mean, masked_psnr
from models.machine.backend import jt
from models.structs import RayView, Var

# Of the published terms; another one is plotted under its own name.
LOSS_TAGS = {"color": "Loss/color_loss", "eikonal": "Loss/eikonal_loss", "mask": "Loss/mask_loss"}


class NeuSModel(PixelModel):
    """A `models.kinds.protocol.Model`."""

    def __init__(self, renderer: NeuSRenderer, train: TrainConfig, terms: Mapping[str, TermOf] = TERMS) -> None:
        self.renderer = renderer
        self.train = train
        self.terms = terms

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks under their published names, in the published order."""
        fields = self.renderer.fields
        networks = {"nerf": fields.nerf} if fields.nerf is not None else {}
        return networks | {
            "sdf_network_fine": fields.sdf,
            "variance_network_fine": fields.sharpness,
            "color_network_fine": fields.color,
        }

    @property
    def level_set(self) -> LevelSet:
        """The zero set of the signed distance."""
        return LevelSet(
            self._distances,
            0.0,
            "the signed distance",
            background="masks or model.neus_renderer.n_outside",
            bounded=True,
            gradient=self._gradients,
            color=self._colors,
        )

    def sharpness(self) -> float:
        """inv_s."""
        with jt.no_grad():
            return float(self.renderer.fields.sharpness().item())

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """A shift for each ray, and a place within its stratum for each depth of the background."""
        if self.renderer.conf.perturb == 0.0:
            return None
        return {
            "inside": generator.random((entries, 1), dtype=np.float32),
            "outside": generator.random((entries, self.renderer.conf.n_outside), dtype=np.float32),
        }

    def settle(self, batch: PixelBatch, noise: Noise | None, moment: Moment) -> Var:
        """All depths inside the sphere, [R, N], which takes the up-sampling rounds."""
        del moment
        depths = self.renderer.place(upload(batch.rays), noise)
        depths.sync()
        return depths

    def objective(
        self, batch: PixelBatch, noise: Noise | None, moment: Moment, settled: Var | None = None
    ) -> Objective:
        """The terms of `kinds.neus.terms`, weighted as the conf says."""
        ratio = cos_anneal_ratio(moment.step, self.train)
        output = self.renderer.render(upload(batch.rays), noise, ratio, moment.background_rgb, settled)
        seen = Comparison(output, *photograph(batch, self.train))
        return Objective(terms_of(self.terms, seen, self.train), seen)

    def scalars(self, output: Comparison, losses: Mapping[str, Var]) -> dict[str, Var]:
        """The published TensorBoard scalars."""
        render, mask = output.render, output.mask
        found = {"Loss/loss": losses["total"]} | {
            LOSS_TAGS.get(name, f"Loss/{name}"): losses[name] for name in self.terms
        }
        return found | {
            "Statistics/s_val": 1.0 / render.inv_s,
            "Statistics/cdf": masked_mean(render.cdf[:, :1], mask),
            "Statistics/weight_max": masked_mean(render.weights.max(dim=1, keepdims=True), mask),
            "Statistics/psnr": masked_psnr(render.rgb, output.target, mask),
        }

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The sharpness."""
        return f"inv_s {1.0 / scalars['Statistics/s_val']:.1f}"

    def view(self, rays: Rays, moment: Moment) -> RayView:
        """Colours, background included; normal, distance and opacity of what lies inside the sphere."""
        return sparing_view(self.renderer, rays, cos_anneal_ratio(moment.step, self.train), moment.background_rgb)

    def view_fully(self, rays: Rays, moment: Moment) -> RayView:
        """The same with all networks asked at all sections."""
        ratio = cos_anneal_ratio(moment.step, self.train)
        with jt.no_grad():
            return ray_view(self.renderer.render(upload(rays), None, ratio, moment.background_rgb))

    def _distances(self, points: np.ndarray) -> np.ndarray:
        """Signed distances [P, 1]."""
        with jt.no_grad():
            return self.renderer.fields.sdf.at_weights().distance(jt.array(points)).numpy()

    def _gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Signed distances [P, 1] and their gradients [P, 3]."""
        with jt.no_grad():
            field = self.renderer.fields.sdf.at_weights().evaluate(jt.array(points))
            return field.sdf.numpy(), field.gradient.numpy()

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """RGB [P, 3] of points seen against their normals [P, 3]."""
        with jt.no_grad():
            place = jt.array(points)
            field = self.renderer.fields.sdf.at_weights().evaluate(place)
            return self.renderer.fields.color(place, field.gradient, -jt.array(normals), field.feature).numpy()


def cos_anneal_ratio(step: int, conf: TrainConfig) -> float:
    """0 at the start to 1 at `anneal_end`; 1 throughout where that is 0 (as published, exp_runner.py)."""
    if conf.anneal_end == 0.0:
        return 1.0
    return min(1.0, step / conf.anneal_end)
