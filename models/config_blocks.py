"""The blocks of a conf as frozen dataclasses: one field per published key, ours with defaults.

The keys are those of the published confs (https://github.com/Totoro97/NeuS/tree/6e0a230/confs) and of the
constructors they are handed to (models/fields.py and models/renderer.py there); confs/base/*.conf explains each.
Everybody imports them from models.config.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from data.config import DatasetConfig
from models.config_strict import AUTO, Auto, limits
from models.ops.sizes import encoding_width

MAX_FREQUENCIES = 24  # float32 has 24 significant bits: beyond them the octaves of an encoding are noise
MAX_SDF_LAYERS = 30  # the native network keeps its skips as the bits of a 32-bit integer
LOG_FLOAT32_MAX = 88.72  # exp of anything larger is infinite in float32
LARGEST_SEED = 2**31 - 1  # Jittor's generator takes a signed 32-bit seed
INPUT_WIDTHS = {"idr": 9, "no_view_dir": 6, "no_normal": 6}  # point 3, view 3, normal 3, less what a mode leaves out
# Keys that only shape the initial weights: another value does not contradict weights already trained.
INITIALISATION_KEYS = frozenset({"bias", "geometric_init", "inside_outside"})
LARGEST_EMA_DECAY = 0.999999  # float32 rounds what a larger one takes in of each step to nothing
NEUS, NERF = "neus", "nerf"  # the values of model.type
NETWORK_BLOCKS = {NEUS: ("nerf", "sdf_network", "rendering_network"), NERF: ("nerf",)}
COSINE, EXPONENTIAL = "cosine", "exponential"  # the values of train.learning_rate_decay


@dataclass(frozen=True)
class GeneralConfig:
    """Where the results of an experiment go."""

    base_exp_dir: str
    recording: tuple[str, ...] = ()  # folders whose .py files are copied into <base_exp_dir>/recording


@dataclass(frozen=True)
class TrainConfig:
    """Schedule, losses and frequencies. Steps count optimiser steps; a frequency of 0 means never."""

    learning_rate: float = limits(above=0)
    learning_rate_alpha: float = limits(at_least=0, at_most=1)
    end_iter: int = limits(at_least=1)
    batch_size: int = limits(at_least=1)
    validate_resolution_level: int = limits(at_least=1)
    use_white_bkgd: bool
    save_freq: int = limits(at_least=0)
    val_freq: int = limits(at_least=0)
    val_mesh_freq: int = limits(at_least=0)
    report_freq: int = limits(at_least=1)
    igr_weight: float = limits(at_least=0)
    mask_weight: float = limits(at_least=0)
    warm_up_end: float = limits(0.0, at_least=0)
    anneal_end: float = limits(0.0, at_least=0)
    max_bad_steps: int = limits(10, at_least=1)  # in a row, before the run goes back to its last good checkpoint
    keep_checkpoints: int = limits(0, at_least=0)  # 0: all, as published
    seed: int = limits(0, at_least=0, at_most=LARGEST_SEED)
    render_chunk: int | Auto = limits(AUTO, at_least=1)  # rays at a time when an image is rendered
    ray_chunk: int | Auto = limits(AUTO, at_least=1)  # rays of a batch that are differentiated at a time
    memory_limit: float | Auto = limits(AUTO, above=0)  # GB, 10^9 bytes, that the chunks of "auto" are chosen for
    ema_decay: float = limits(0.0, at_least=0, at_most=LARGEST_EMA_DECAY)  # of the averaged weights; 0: none
    mesh_resolution: int = limits(64, at_least=2)  # grid points per side of the meshes written during training
    learning_rate_decay: str = limits(COSINE, one_of=(COSINE, EXPONENTIAL))

    @property
    def background_rgb(self) -> np.ndarray | None:
        """The colour [3] behind everything; None for black."""
        return np.ones(3, np.float32) if self.use_white_bkgd else None


@dataclass(frozen=True)
class NerfConfig:
    """The background network (inverted-sphere NeRF); with model.type = nerf, the coarse and the fine network."""

    D: int = limits(8, at_least=1)
    W: int = limits(256, at_least=2)
    d_in: int = limits(3, at_least=3, at_most=4)
    d_in_view: int = limits(3, at_least=3, at_most=3)
    multires: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    multires_view: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    output_ch: int = limits(4, at_least=1)
    skips: tuple[int, ...] = (4,)
    use_viewdirs: bool = False


@dataclass(frozen=True)
class SdfConfig:
    """The signed distance network."""

    d_in: int = limits(at_least=3, at_most=3)
    d_out: int = limits(at_least=2)
    d_hidden: int = limits(at_least=1)
    n_layers: int = limits(at_least=1, at_most=MAX_SDF_LAYERS)
    skip_in: tuple[int, ...] = (4,)
    multires: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    bias: float = 0.5
    scale: float = limits(1.0, above=0)
    geometric_init: bool = True
    weight_norm: bool = True
    inside_outside: bool = False

    @property
    def embedded_width(self) -> int:
        """Width of the encoded input: the point and, per octave, its sines and cosines."""
        return encoding_width(self.d_in, self.multires)


@dataclass(frozen=True)
class ColorConfig:
    """The colour network."""

    d_feature: int = limits(at_least=1)
    mode: str = limits(one_of=tuple(INPUT_WIDTHS))
    d_in: int = limits(at_least=1)
    d_out: int = limits(at_least=3, at_most=3)
    d_hidden: int = limits(at_least=1)
    n_layers: int = limits(at_least=1)
    weight_norm: bool = True
    multires_view: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    squeeze_out: bool = True


@dataclass(frozen=True)
class VarianceConfig:
    """The single sharpness parameter; inv_s = exp(10 * value)."""

    init_val: float = limits(at_most=LOG_FLOAT32_MAX / 10)


@dataclass(frozen=True)
class RendererConfig:
    """How many samples a ray gets, and where."""

    n_samples: int = limits(at_least=1)
    n_importance: int = limits(at_least=0)
    n_outside: int = limits(at_least=0)
    up_sample_steps: int = limits(at_least=0)
    perturb: float = limits(at_least=0)

    def allows_importance(self, count: int) -> bool:
        """Whether n_importance could be `count`: it takes sections to refine, and rounds to do it in."""
        return count == 0 or (self.n_samples >= 2 and self.up_sample_steps >= 1)


@dataclass(frozen=True)
class NerfRendererConfig:
    """The same for model.type = nerf. Depths run from near to far along the unit ray; both 0: the sphere's span."""

    n_samples: int = limits(64, at_least=2)
    n_importance: int = limits(128, at_least=1)
    perturb: float = limits(1.0, at_least=0)
    near: float = limits(0.0, at_least=0)
    far: float = limits(0.0, at_least=0)

    def allows_importance(self, count: int) -> bool:
        """Whether n_importance could be `count`: the fine network is trained at the fine depths."""
        return count >= 1


@dataclass(frozen=True)
class ModelConfig:
    """The networks and the renderer."""

    nerf: NerfConfig
    sdf_network: SdfConfig
    variance_network: VarianceConfig
    rendering_network: ColorConfig
    neus_renderer: RendererConfig
    nerf_renderer: NerfRendererConfig = NerfRendererConfig()
    type: str = limits(NEUS, one_of=(NEUS, NERF))

    @property
    def renderer(self) -> RendererConfig | NerfRendererConfig:
        """The block of the renderer that `type` chooses."""
        return self.nerf_renderer if self.type == NERF else self.neus_renderer

    def with_importance(self, count: int) -> ModelConfig:
        """The same with `count` as that renderer's n_importance."""
        return replace(self, **{f"{self.type}_renderer": replace(self.renderer, n_importance=count)})


@dataclass(frozen=True)
class ExperimentConfig:
    """A whole conf."""

    general: GeneralConfig
    dataset: DatasetConfig
    train: TrainConfig
    model: ModelConfig
