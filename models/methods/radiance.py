"""Radiance fields (NeRF): density and colour, with any estimator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data.rays import Rays
from models.estimators.packed_radiance import RadianceOccupancyEstimator
from models.fields.protocol import RadianceFields
from models.machine.backend import jt
from models.methods.fast.conf import FAST_NERF
from models.methods.protocol import LevelSet
from models.methods.volume import VolumeModel
from models.rendering.protocol import OfRays, RayBatch
from models.rendering.render import radiance_loss, render_radiance
from models.rendering.terms import masked_mean, masked_psnr, masked_target
from models.rendering.views import packed_view
from models.structs import RayView, RenderOutput, Var, loss_scalars

# Density per working-frame unit at the surface: a path of a hundredth of the sphere's diameter absorbs 40 %.
SURFACE_DENSITY = 25.0


class RadianceModel(VolumeModel):
    """A density and an emitted colour. Nothing is precomputed: the coarse pass is differentiated."""

    objective = radiance_loss
    fields: RadianceFields

    def scalar_inputs(self, rendered: OfRays) -> dict[str, Var]:
        """Colours, and of two passes the coarse colours and the largest weight of each ray."""
        rendering = rendered.rendering
        found = {"rgb": rendering.rgb, "target": rendered.target, "mask": rendered.counts}
        if rendering.coarse is None:
            return found
        weights = rendering.weights.reshape((len(rendered.target), -1))
        return found | {"coarse_rgb": rendering.coarse.rgb, "weight_max": weights.max(dim=1, keepdims=True)}

    def scalars(self, output: Mapping[str, Var], losses: Mapping[str, Var]) -> dict[str, Var]:
        """The losses, and the PSNR of each pass."""
        target, mask = output["target"], output["mask"]
        found = loss_scalars(losses) | {"Statistics/psnr": masked_psnr(output["rgb"], target, mask)}
        if "coarse_rgb" in output:
            found["Statistics/weight_max"] = masked_mean(output["weight_max"], mask)
            found["Statistics/coarse_psnr"] = masked_psnr(output["coarse_rgb"], target, mask)
        return found

    @property
    def level_set(self) -> LevelSet:
        """A level set of the density."""
        return LevelSet(self._emptiness, SURFACE_DENSITY, "minus the density", evened=self._evened, color=self._colors)

    def _emptiness(self, points: np.ndarray) -> np.ndarray:
        """Minus the density at points [P, 3], [P, 1]."""
        with jt.no_grad():
            return -self.fields.fine.density(jt.array(points)).numpy()

    def _evened(self, emptiness: np.ndarray) -> np.ndarray:
        return -self.fields.fine.raw_of(-emptiness)

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        with jt.no_grad():
            return self.fields.fine.evaluate(jt.array(points), -jt.array(normals)).rgb.numpy()


class PackedRadianceModel(RadianceModel):
    """A radiance field sampled in occupied cells."""

    type = FAST_NERF
    estimator: RadianceOccupancyEstimator

    def targets(self, batch: RayBatch) -> tuple[Var, Var, Var | None]:
        """All rays count; with masks, pixels outside are fitted to the background."""
        counts = jt.ones((len(batch), 1))
        if batch.mask is None:
            return jt.array(batch.rgb), counts, None
        mask = jt.array(batch.mask)
        return masked_target(jt.array(batch.rgb), mask, self.behind), counts, mask

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The occupied fraction of the grid."""
        return f"cells {100.0 * np.mean(self.estimator.region.grid.cells > 0):.1f} %"

    def view(self, rays: Rays, step: int) -> RayView:
        """Colours, normals of the density, distance and opacity."""
        estimator, field = self.estimator, self.fields.fine
        behind = self.behind

        def look(rays: Rays) -> tuple[RenderOutput, Var, int]:
            samples, count = estimator.view_samples(rays)
            shown, normals = field.with_normals(samples.positions, samples.directions)
            return render_radiance(shown, samples, behind), normals, count

        return packed_view(rays, look, behind)

    def _emptiness(self, points: np.ndarray) -> np.ndarray:
        return -self.estimator.extracted(points)
