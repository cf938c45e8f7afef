"""The blocks `general` and `train` of a conf, and those of `model` that compare photographs or learn something of them.

Published keys (https://github.com/Totoro97/NeuS/tree/6e0a230/confs) and further ones; confs/base/*.conf explains each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.config.strict import AUTO, LEAST_RATE, Auto, ConfigError, every, limits, rate, share, weight

if TYPE_CHECKING:
    import numpy as np

MOST_NEIGHBOURS, LARGEST_LEVELS = 32, 32  # of a photograph, and of a feature grid
EXPOSURE = "exposure"  # name of the network in checkpoints


@dataclass(frozen=True)
class PhotographsConfig:
    """Exposure and white balance of each photograph, not learned by default."""

    exposure: bool | Auto = False
    exposure_rate: float = rate(0.3)


@dataclass(frozen=True)
class PatchesConfig:
    """The patch comparison across photographs."""

    radius: int = limits(3, at_least=1, at_most=10)
    neighbours: int = limits(8, at_least=1, at_most=MOST_NEIGHBOURS)
    best: int = limits(4, at_least=1, at_most=MOST_NEIGHBOURS)

    def check(self) -> None:
        """Raises ConfigError if `best` exceeds the number of neighbours."""
        if self.best > self.neighbours:
            raise ConfigError(f"model.patches.best = {self.best}: must not be above neighbours = {self.neighbours}")


ADAM, COSINE, EXPONENTIAL = "adam", "cosine", "exponential"
# The names that `train.optimizer` and `train.learning_rate_decay` take, of models/training/optimizer.py.
OPTIMIZERS, DECAYS = [ADAM], [COSINE, EXPONENTIAL]
BETA_1 = 0.9  # of Adam's first moment

MOST_RAYS = 10**7  # of a batch or a chunk; more than the pixels of a photograph in training
LARGEST_EMA_DECAY = 0.999999  # with a larger one, float32 rounds the contribution of a step to zero


@dataclass(frozen=True)
class GeneralConfig:
    """The folder of an experiment's results."""

    base_exp_dir: str
    recording: tuple[str, ...] = ()  # folders whose .py files are copied into <base_exp_dir>/recording


@dataclass(frozen=True)
class TrainConfig:
    """Schedule, losses and frequencies. Steps count optimiser steps; a frequency of 0 means never."""

    learning_rate: float = limits(at_least=LEAST_RATE, at_most=1)
    learning_rate_alpha: float = limits(at_least=0, at_most=1)
    end_iter: int = every(least=1)
    batch_size: int = limits(at_least=1, at_most=MOST_RAYS)
    # 0: at most 800 pixels on the longer side; 64 as of dataset.downscale
    validate_resolution_level: int = limits(at_least=0, at_most=64)
    use_white_bkgd: bool = limits()
    save_freq: int = every()
    val_freq: int = every()
    val_mesh_freq: int = every()
    report_freq: int = every(least=1)
    igr_weight: float = weight()
    mask_weight: float = weight()
    free_weight: float = weight(1.0)  # without: bunny up to a sixth worse
    points_weight: float = weight(0.0)
    patches_weight: float | Auto = weight(0.0)
    patches_from: float = share(0.2)
    # More fills concave parts, half as much leaves bumps on smooth surfaces.
    curvature_weight: float = weight(2e-3)  # without: jug a third, room a tenth worse
    robust_scale: float = share(0.0)
    exposure_weight: float = weight(0.01)
    opacity_weight: float = weight(0.01)
    size_weight: float = weight(0.01)
    distortion_weight: float = weight(0.0)
    normal_weight: float = weight(0.0)
    warm_up_end: float = every(0.0)
    anneal_end: float = every(0.0)
    max_bad_steps: int = every(10, least=1)  # consecutive skipped steps before a return to the last checkpoint
    keep_checkpoints: int = every(0)  # 0: all, as published
    seed: int = limits(0, at_least=0, at_most=2**31 - 1)  # Jittor's generator takes a signed 32-bit seed
    render_chunk: int | Auto = limits(AUTO, at_least=1, at_most=MOST_RAYS)  # rays per chunk of an image
    ray_chunk: int | Auto = limits(AUTO, at_least=1, at_most=MOST_RAYS)  # rays per chunk of a training batch
    # GB (10^9 bytes), for the choice of "auto" chunks
    memory_limit: float | Auto = limits(AUTO, at_least=1e-3, at_most=1e6)
    ema_decay: float = limits(0.0, at_least=0, at_most=LARGEST_EMA_DECAY)  # of the averaged weights; 0: none
    # Grid points per side of the meshes written during training.
    mesh_resolution: int = limits(64, at_least=2, at_most=2**15)
    details: bool | Auto = AUTO  # whether `reconstruct` adds those of full-size photographs to its mesh
    learning_rate_decay: str = limits(COSINE, one_of=DECAYS)
    optimizer: str = limits(ADAM, one_of=OPTIMIZERS)
    adam_beta_2: float = limits(0.999, at_least=0, at_most=LARGEST_EMA_DECAY)  # of the second moment
    # Added to the root of the second moment; that of the smallest one that is stored, 1.2e-38, is 1e-19.
    adam_epsilon: float = limits(1e-8, at_least=1e-20, at_most=1)
    tf32: bool = False  # matrix products on CUDA in TF32: 10-bit factors, float32 sums

    @property
    def background_rgb(self) -> np.ndarray | None:
        """The background colour [3]; None for black."""
        import numpy as np  # not above: `doctor` tells what to do where it is missing

        return np.ones(3, np.float32) if self.use_white_bkgd else None

    @property
    def background_name(self) -> str:
        """The background colour in words."""
        return "white" if self.use_white_bkgd else "black"

    def check(self) -> None:
        """Raises ConfigError if the warm-up is not shorter than the training, or a decay is impossible."""
        if self.warm_up_end >= self.end_iter:
            raise ConfigError(
                f"train.warm_up_end = {self.warm_up_end:g}: must be below train.end_iter = {self.end_iter}; "
                "lower it (a twentieth of end_iter is usual)"
            )
        if self.learning_rate_decay == EXPONENTIAL and self.learning_rate_alpha == 0.0:
            raise ConfigError(
                "train.learning_rate_alpha = 0: an exponential decay cannot reach 0; set it above 0, such as 0.1, "
                "or learning_rate_decay = cosine"
            )
