"""What an estimator is; by default it has dense samples, and no state, schedule or background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data.rays import Rays
from data.scenes.sampler import PixelSampler
from data.scenes.scene import Posed, Scene
from models.machine.backend import jt
from models.structs import Noise, RaySamples, SampleRequest, Var


class Estimator:
    """Determines the sample positions along rays. An estimator overrides `sample`, and what else it needs."""

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks of the background, by their names in checkpoints."""
        return {}

    # the batch

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> Any:
        """Random pixels of a scene, of one image at a time; initialises a training from it."""
        return PixelSampler(scene, batch_size, generator)

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """The jitter of a batch; None without drawing numbers if there is none, or if batches contain it."""
        return None

    def precompute(self, request: SampleRequest) -> Var | None:
        """What is computed once for rays that are rendered several times, without gradients; None for nothing."""
        return None

    def sample(self, request: SampleRequest) -> RaySamples:
        """The samples of rays, differentiable in the networks of the background only."""
        raise NotImplementedError

    def behind(self, background_rgb: np.ndarray | None) -> np.ndarray | None:
        """The background colour [3] of rays; None for black."""
        return background_rgb

    # around a step

    def begin(self) -> None:
        """Start a new training; called once, after `sampler`, unless a checkpoint is resumed."""

    def before_step(self, step: int) -> None:
        """Update the schedule; called before the batch of a step is drawn."""
        del step

    def after_collapse(self, step: int) -> str:
        """Postpone the likely cause of a collapse until this step; returns the end of a sentence about it, or ""."""
        del step
        return ""

    # state

    def see(self, views: Posed) -> None:
        """Take the cameras of a scene, all that the results of a trained model need of it."""
        del views

    def buffers(self) -> dict[str, np.ndarray]:
        """The arrays that a resume needs."""
        return {}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if they do not fit."""
        if buffers:
            raise ValueError(f"{next(iter(buffers))} does not belong to this method")


def upload(rays: Rays) -> Rays:
    """The rays with Vars, copied to the device once."""
    return Rays(*(jt.array(value) for value in (rays.origins, rays.directions, rays.near, rays.far)))


def require_alike(own: Mapping[str, np.ndarray], saved: Mapping[str, np.ndarray], key: str) -> None:
    """Raises ValueError, with the `key` of the conf, unless all buffers are saved in types and shapes of their own."""
    for name, value in own.items():
        if name not in saved or saved[name].dtype != value.dtype:
            raise ValueError(f"its buffer {name} is missing, or of another type than {value.dtype}")
        if saved[name].shape != value.shape:
            raise ValueError(
                f"its buffer {name} has {len(saved[name])} entries along a side, the conf asks for {len(value)} ({key})"
            )
