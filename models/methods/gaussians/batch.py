"""Batches of whole images in random order, each with its camera."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.cameras import PIXEL_CENTRE
from data.pixels import to_float
from data.scenes.sampler import ViewSampler
from data.scenes.scene import Scene
from models.machine.backend import jt
from models.ops.gaussians.splat_project import camera_numbers
from models.rendering.losses import masked_target
from models.structs import Var


def numbers_of(intrinsics: np.ndarray, c2w: np.ndarray) -> np.ndarray:
    """The camera as an input of the operations, float32 [17]."""
    shifted = np.array(intrinsics, np.float64)
    shifted /= shifted[2, 2]
    shifted[:2, 2] += PIXEL_CENTRE
    return camera_numbers(np.linalg.inv(c2w), shifted)


@dataclass(frozen=True)
class Picture:
    """A photograph with its camera."""

    view: int
    camera: np.ndarray  # float32 [17]
    rgb: np.ndarray  # [H, W, 3] in [0, 1]
    mask: np.ndarray | None  # [H, W] in [0, 1]

    def target(self, uses_mask: bool, background: np.ndarray | None) -> Var:
        """Target colours [H, W, 3]: outside the mask those of the background, None for black."""
        if self.mask is None or not uses_mask:
            return jt.array(self.rgb)
        return masked_target(jt.array(self.rgb), jt.array(self.mask[..., None]), background)


@dataclass(frozen=True)
class PictureBatch:
    """R photographs of individual sizes."""

    pictures: tuple[Picture, ...]

    def __len__(self) -> int:
        """The number of photographs R."""
        return len(self.pictures)

    def part(self, start: int, stop: int) -> PictureBatch:
        """Photographs `start` to `stop - 1`."""
        return PictureBatch(self.pictures[start:stop])

    def words(self) -> dict[str, np.ndarray]:
        """The arrays by description, for messages."""
        arrays: dict[str, np.ndarray] = {}
        for picture in self.pictures:
            inputs = {"camera": picture.camera, "colours": picture.rgb, "mask": picture.mask}
            given = {name: array for name, array in inputs.items() if array is not None}
            arrays |= {f"the {name} of photograph {picture.view}": array for name, array in given.items()}
        return arrays


class PictureSampler(ViewSampler):
    """Photographs in random order, reshuffled after each epoch."""

    def __init__(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> None:
        super().__init__(scene, batch_size, generator)
        self._cameras = [numbers_of(scene.intrinsics[view], scene.c2w[view]) for view in range(scene.n_views)]

    def next(self) -> PictureBatch:
        """The next R = batch_size photographs."""
        return PictureBatch(tuple(self._picture(self._next_view()) for _ in range(self._batch_size)))

    def _picture(self, view: int) -> Picture:
        """Decode a photograph and its mask."""
        scene = self._scene
        mask = None if scene.masks is None else to_float(scene.masks[view])
        return Picture(view, self._cameras[view], to_float(scene.images[view]), mask)
