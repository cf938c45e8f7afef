"""A kind of model for the tests: blobs whose number changes, without a surface, with a sampler of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from toys import PixelModel, ToyBlock, photograph

from data.rays import PixelBatch, Rays
from data.scenes.sampler import pixel_batch
from models.config.blocks import TrainConfig
from models.config.strict import limits
from models.estimators.pixels import upload
from models.fields.state import take_rows
from models.machine.backend import jt
from models.ops.volrend import over_background
from models.rendering.losses import mask_term, masked_psnr, squared_term
from models.structs import Objective, RayView, Var


@dataclass(frozen=True)
class CloudBlock:
    """How many blobs there are at first and at most, and the steps between two changes."""

    points: int = limits(6, at_least=1)
    most: int = limits(9, at_least=1)
    every: int = limits(3, at_least=1)


@dataclass(frozen=True)
class CloudConfig(ToyBlock):
    """The block `model`: type = cloud, cloud { ... }."""

    cloud: CloudBlock
    type: str = "cloud"

    @property
    def parameters(self) -> int:
        return 7 * self.cloud.most

    @property
    def buffer_bytes(self) -> int:
        return 4 * self.cloud.most + 8


class Cloud(jt.nn.Module):
    """N blobs: centre [N, 3], colour [N, 3] and size [N, 1]."""

    def __init__(self, count: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.centre = jt.array(generator.uniform(-0.4, 0.4, (count, 3)).astype(np.float32))
        self.color = jt.array(generator.normal(size=(count, 3)).astype(np.float32))
        self.size = jt.array(np.full((count, 1), -1.5, np.float32))


class MixedSampler:
    """Batches of pixels of all photographs at once."""

    def __init__(self, scene, batch_size, generator) -> None:
        self._scene, self._batch_size, self._generator = scene, batch_size, generator
        self.drawn = 0

    def next(self) -> PixelBatch:
        self.drawn += 1
        views = np.sort(self._generator.integers(self._scene.n_views, size=self._batch_size))
        parts = []
        for view in np.unique(views):
            count, (width, height) = int((views == view).sum()), self._scene.size(view)
            x, y = (self._generator.integers(end, size=count) for end in (width, height))
            parts.append(pixel_batch(self._scene, view, x, y))
        rays = Rays(*(np.concatenate(column) for column in zip(*(vars(p.rays).values() for p in parts), strict=True)))
        return PixelBatch(
            rays, *(np.concatenate([getattr(p, name) for p in parts]) for name in ("rgb", "mask", "view"))
        )

    def state(self):
        return {"generator": self._generator.bit_generator.state, "drawn": self.drawn}

    def restore(self, state) -> None:
        self._generator.bit_generator.state = state["generator"]
        self.drawn = int(state["drawn"])


@dataclass(frozen=True)
class Seen:
    """What rays show of the cloud."""

    rgb: Var
    opacity: Var
    target: Var
    mask: Var


class CloudModel(PixelModel):
    """Each blob weighs by how near a ray passes it; those pulled most are split, the one pulled least goes."""

    def __init__(self, block: CloudBlock, train: TrainConfig, generator: np.random.Generator) -> None:
        self.block, self.train = block, train
        self.cloud = Cloud(block.points, generator)
        self.pull = np.zeros(block.points, np.float32)  # mean length of each centre's gradient since the last change
        self.changes = np.zeros(1, np.int64)

    @property
    def networks(self):
        return {"cloud": self.cloud}

    @property
    def level_set(self):
        return None

    def sharpness(self):
        return None

    def sampler(self, scene, batch_size, generator):
        return MixedSampler(scene, batch_size, generator)

    def draw_noise(self, entries, generator):
        return None

    def precompute(self, batch, noise, moment):
        return None

    def objective(self, batch, noise, moment, precomputed=None):
        seen = Seen(*self._render(batch.rays, moment), *photograph(batch, self.train))
        terms = {
            "color": squared_term(seen.rgb, seen.target, seen.mask),
            "mask": mask_term(seen.opacity, seen.mask, self.train.mask_weight),
        }
        return Objective(terms, seen)

    def scalars(self, output: Seen, losses: Mapping[str, Var]):
        psnr = masked_psnr(output.rgb, output.target, output.mask)
        return {"Loss/loss": losses["total"], "Statistics/psnr": psnr}

    def progress_text(self, scalars):
        return f"{len(self.pull)} blobs"

    def view(self, rays, moment):
        with jt.no_grad():
            rgb, opacity = (value.numpy() for value in self._render(rays, moment))
        return RayView(rgb, np.zeros_like(rgb), np.zeros_like(opacity), opacity)

    def view_fully(self, rays, moment):
        return self.view(rays, moment)

    def _render(self, rays, moment):
        placed = upload(rays)
        count = self.cloud.centre.shape[0]
        offset = self.cloud.centre.reshape((1, count, 3)) - placed.origins.reshape((-1, 1, 3))
        along = (offset * placed.directions.reshape((-1, 1, 3))).sum(dim=2)
        passed = offset.sqr().sum(dim=2) - along.sqr()
        weights = (-passed / self.cloud.size.exp().sqr().reshape((1, count))).exp()
        total = weights.sum(dim=1, keepdims=True)
        opacity = total / (total + 0.1)
        rgb = opacity * jt.matmul(weights / (total + 1e-6), self.cloud.color.sigmoid())
        return over_background(rgb, opacity, moment.background_rgb), opacity

    # what changes between steps

    def acts_after(self, step):
        return True

    def after_step(self, parameters, moment, gradients):
        self.pull = self.pull + np.linalg.norm(gradients["cloud.centre"].numpy(), axis=1)
        if (moment.step + 1) % self.block.every:
            return
        order = np.argsort(self.pull, kind="stable")
        named = {name: value.numpy() for name, value in self.cloud.state_dict().items()}
        grown = {name: values[order[-2:]] for name, values in named.items()}
        jitter = np.random.default_rng(self.changes[0]).normal(0.0, 0.05, (2, 3))
        grown["centre"] = (grown["centre"] + jitter).astype(np.float32)
        kept = np.sort(order[1:])
        parameters.keep("cloud", kept)
        if len(kept) + 2 <= self.block.most:
            parameters.append("cloud", grown)
        self.pull = np.zeros(self.cloud.centre.shape[0], np.float32)
        self.changes = self.changes + 1

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        take_rows(self.cloud, shapes["cloud"])

    def buffers(self):
        return {"pull": self.pull, "changes": self.changes}

    def load_buffers(self, buffers):
        if set(buffers) != {"pull", "changes"} or len(buffers["pull"]) != self.cloud.centre.shape[0]:
            raise ValueError("its buffers do not fit its blobs")
        self.pull, self.changes = buffers["pull"], buffers["changes"]


def build(conf: CloudConfig, train: TrainConfig, generator: np.random.Generator) -> CloudModel:
    """The model."""
    return CloudModel(conf.cloud, train, generator)
