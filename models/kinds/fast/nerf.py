"""NeRF on a grid of features with packed samples: networks, objective, pictures, surface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.scenes.scene import Scene
from models.config.blocks import TrainConfig
from models.fields.color import RenderingNetwork
from models.fields.density_grid import LARGEST_LOG, DensityGrid
from models.kinds.fast.batch import PackedBatch
from models.kinds.fast.conf import FastNeRFConfig
from models.kinds.fast.light import is_lit
from models.kinds.fast.looks import Looks
from models.kinds.fast.outputs import RadianceOutput
from models.kinds.fast.packed import PackedModel, PackedView, Samples
from models.kinds.fast.sampler import PackedSampler
from models.kinds.protocol import LevelSet, Moment, Noise, Objective
from models.kinds.terms import mask_term, masked_psnr, squared_term
from models.machine.backend import jt
from models.ops.packed import packed_sum, packed_weights
from models.rendering.occupancy import Walking
from models.rendering.sections import SMALLEST_SLOPE, SURFACE_DENSITY, over_background
from models.structs import Var


@dataclass(frozen=True)
class RadianceFields:
    """Density and colour."""

    density: DensityGrid
    color: RenderingNetwork


class FastNeRFModel(PackedModel):
    """A `models.kinds.protocol.Model`."""

    samples_block = "radiance"

    def __init__(self, fields: RadianceFields, conf: FastNeRFConfig, train: TrainConfig) -> None:
        super().__init__(fields.density, conf.radiance, train)
        self.fields, self.conf = fields, conf
        self.looks = Looks(self.occupancy, conf.radiance.threshold)

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """Density, colour."""
        return {"density_grid": self.fields.density, "color_network": self.fields.color}

    @property
    def level_set(self) -> LevelSet:
        """A level set of the density."""
        return LevelSet(self._emptiness, SURFACE_DENSITY, "minus the density", evened=_raw, color=self._colors)

    def sharpness(self) -> None:
        """A density has none."""

    def rates(self, step: int) -> Mapping[str, float]:
        """Networks and table rise together; the networks may be slower."""
        warm = min(1.0, (step + 1) / (self.conf.radiance.warm_up + 1))
        return {
            "density_grid": self.conf.radiance.network_rate * warm,
            "density_grid.table": warm,
            "color_network": self.conf.radiance.network_rate * warm,
        }

    def _renew(self) -> None:
        """Look at some of the cells."""
        self.looks.renew(lambda points, side: 1.0 - np.exp(self._emptiness(points)[:, 0] * side))

    def _reopen(self) -> None:
        """With the looks that found cells empty."""
        super()._reopen()
        self.looks.forget()

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> PackedSampler:
        """Batches without the samples that no light reaches."""
        sampler = super().sampler(scene, batch_size, generator)
        sampler.sift = self._is_reached
        return sampler

    def _is_reached(self, walking: Walking, step: float) -> np.ndarray:
        """Which samples of a walk light reaches: those that take part in its rendering, bool [S]."""
        with jt.no_grad():
            alpha = self.fields.density.at_weights().evaluate(walking.points()).alpha(step)
            jt.sync([alpha])  # before a card is waited for
            offsets = walking.walk.offsets
            return is_lit(alpha.numpy()[: offsets[-1]], offsets)

    def _look(self, samples: Samples) -> PackedView:
        """What samples show; their normals are those of the density."""
        points, offsets = samples.points, samples.offsets
        found, slope = self.fields.density.at_weights().with_slope(points)
        weights, left = packed_weights(found.alpha(samples.step), offsets)
        rgb = packed_sum(weights, self.fields.color(points, slope, samples.directions, found.feature), offsets)
        normals = -slope / jt.maximum(slope.sqr().sum(dim=1, keepdims=True).sqrt(), SMALLEST_SLOPE)
        return PackedView(rgb, left, 1.0 - left, weights, normals)

    def objective(self, batch: PackedBatch, noise: Noise | None, moment: Moment, settled: None = None) -> Objective:
        """Squared error of all rays; what the masks leave empty is held to the background."""
        points, directions, offsets = (jt.array(v) for v in (batch.points, batch.directions, batch.offsets))
        found = self.fields.density.at_weights().evaluate(points)
        weights, left = packed_weights(found.alpha(float(batch.step[0])), offsets)
        rgb = packed_sum(weights, self.fields.color(points, points, directions, found.feature), offsets)
        opacity = 1.0 - left
        target, mask = self._target(batch, moment)
        output = RadianceOutput(over_background(rgb, opacity, moment.background_rgb), opacity, target)
        every = jt.ones((len(batch), 1))
        terms = {"color": squared_term(output.rgb, target, every)}
        if mask is not None:
            terms["mask"] = mask_term(opacity, mask, self.train.mask_weight)
        return Objective(terms, output)

    def _target(self, batch: PackedBatch, moment: Moment) -> tuple[Var, Var | None]:
        """Colours [R, 3] that rays are held to, and the mask [R, 1] where it has a say."""
        if batch.mask is None or self.train.mask_weight == 0.0:
            return jt.array(batch.rgb), None
        behind = np.zeros(3, np.float32) if moment.background_rgb is None else moment.background_rgb
        return jt.array(np.where(batch.mask > 0, batch.rgb, behind.astype(np.float32))), jt.array(batch.mask)

    def scalars(self, output: RadianceOutput, losses: Mapping[str, Var]) -> dict[str, Var]:
        """The losses and the PSNR of the batch."""
        every = jt.ones_like(output.opacity)
        return {
            "Loss/loss": losses["total"],
            "Loss/color_loss": losses["color"],
            "Statistics/psnr": masked_psnr(output.rgb, output.target, every),
        } | ({"Loss/mask_loss": losses["mask"]} if "mask" in losses else {})

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """How much of the unit cube is not empty."""
        return f"cells {100.0 * np.mean(self.occupancy.cells > 0):.1f} %"

    def buffers(self) -> dict[str, np.ndarray]:
        """With the looks that found a cell empty."""
        return super().buffers() | self.looks.buffers()

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Take them back; raises ValueError for others."""
        super().load_buffers(buffers)
        self.looks.load_buffers(buffers)

    def _emptiness(self, points: np.ndarray) -> np.ndarray:
        """Minus the density at points [P, 3], [P, 1]; none beyond the hull."""
        with jt.no_grad():
            density = self.fields.density.at_weights().evaluate(jt.array(points)).density.numpy()
        density[self._is_outside(points)] = 0.0
        return -density

    def _colors(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """RGB [P, 3] at points seen against their normals [P, 3]."""
        with jt.no_grad():
            place = jt.array(points)
            found = self.fields.density.at_weights().evaluate(place)
            return self.fields.color(place, place, -jt.array(normals), found.feature).numpy()


def _raw(emptiness: np.ndarray) -> np.ndarray:
    """Minus the logarithm of the density, which varies evenly in space; down to a density that absorbs nothing."""
    return -np.log(np.maximum(-emptiness, np.exp(-LARGEST_LOG)))
