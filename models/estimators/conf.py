"""The blocks of confs that estimators read. Does not import Jittor."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from data.cameras import SPAN_LENGTH
from models.config.blocks import LARGEST_LEVELS
from models.config.strict import AUTO, Auto, ConfigError, every, limits, share
from models.ops.sizes import BACKGROUND_RADIUS

MOST_SAMPLES = 2**16  # per ray; a few such rays would exceed the memory
MOST_PACKED = 10**7  # per step
# In round i, samples are drawn with inv_s = 64 * 2^i (NeuS): the last of these is beyond the largest inv_s, 1e6.
MOST_ROUNDS = 15
LEAST_STEP = 1e-4  # 20,000 samples of a ray
LEAST_SECTION = 1e-3  # 8,300 samples of a ray
FARTHEST = 1e4  # of depths, in unit-sphere radii; above, the sample spacing exceeds the size of the region
POINTS_SHARE = 1 / 16  # fraction of the samples that are SfM points: at least as many as a batch has rays


@dataclass(frozen=True)
class EstimatorConfig:
    """The block of an estimator of `model.type = neus`. By default it has no networks, and any values are valid.

    `model`, an argument, is the block that contains it.
    """

    network_blocks: ClassVar[tuple[str, ...]] = ()  # the blocks of `model` of its networks
    background_key: ClassVar[str] = ""  # its key that adds a background; "" if it has none

    @property
    def background(self) -> str:
        """What models the background, for the plan; "" if nothing does."""
        return ""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The keys that the plan prints: the numbers of samples."""
        return tuple(own.name for own in fields(self))

    @property
    def ray_numbers(self) -> int:
        """A lower bound of the float32 numbers that a step stores per ray, see structs.RenderOutput."""
        return 0

    def parameters(self, model: Any) -> int:
        """Trained parameters of its networks."""
        return 0

    def check(self, model: Any) -> None:
        """Raises ConfigError for inconsistent values."""


@dataclass(frozen=True)
class HierarchicalConfig(EstimatorConfig):
    """The block `neus_renderer`: numbers of samples per ray."""

    network_blocks = ("nerf",)
    background_key = "n_outside"
    sizes = ("n_samples", "n_importance", "n_outside")
    n_samples: int = limits(at_least=1, at_most=MOST_SAMPLES)
    n_importance: int = limits(at_least=0, at_most=MOST_SAMPLES)
    n_outside: int = limits(at_least=0, at_most=MOST_SAMPLES)
    up_sample_steps: int = limits(at_least=0, at_most=MOST_ROUNDS)
    perturb: float = share()

    @property
    def background(self) -> str:
        """The network of NeRF++ outside the unit sphere."""
        return "NeRF" if self.n_outside > 0 else ""

    @property
    def ray_numbers(self) -> int:
        """See `EstimatorConfig`."""
        return 9 * (self.n_samples + self.n_importance) + self.n_outside

    def parameters(self, model: Any) -> int:
        """Those of the background."""
        return model.nerf.parameters if self.n_outside > 0 else 0

    def check(self, model: Any) -> None:
        """Raises ConfigError where importance sampling or the background is impossible."""
        if self.n_importance > 0 and self.n_samples < 2:
            raise ConfigError("model.neus_renderer.n_samples = 1: must be at least 2 where n_importance > 0")
        if self.n_importance > 0 and self.up_sample_steps < 1:
            raise ConfigError("model.neus_renderer.up_sample_steps = 0: must be at least 1 where n_importance > 0")
        if self.n_outside > 0:  # points are (x, y, z, 1) / r
            model.nerf.check(4, "where neus_renderer.n_outside > 0")


@dataclass(frozen=True)
class CoarseToFineConfig:
    """The block `nerf_renderer`. Depths are from near to far along the unit ray; both 0: the span of the sphere."""

    n_samples: int = limits(64, at_least=2, at_most=MOST_SAMPLES)
    n_importance: int = limits(128, at_least=1, at_most=MOST_SAMPLES)
    perturb: float = share(1.0)
    near: float = limits(0.0, at_least=0, at_most=FARTHEST)
    far: float = limits(0.0, at_least=0, at_most=FARTHEST)


@dataclass(frozen=True)
class SamplesConfig:
    """Sample counts and schedules of packed samples; times are fractions of train.end_iter."""

    samples: int = limits(8192, at_least=64, at_most=MOST_PACKED)
    cells: int = limits(128, at_least=8, at_most=512)
    first_step: float = limits(0.035, at_least=LEAST_STEP, at_most=SPAN_LENGTH / 2)
    last_step: float = limits(0.007, at_least=LEAST_STEP, at_most=SPAN_LENGTH / 2)
    first_levels: int = limits(4, at_least=1, at_most=LARGEST_LEVELS)
    prune_every: int = every(64, least=1)

    block: ClassVar[str] = "packed"  # its name below model
    anywhere: ClassVar[float] = 0.1  # least share of random samples, once all levels are active; 0: jug a seventh worse
    steps_until: ClassVar[float] = 0.5  # of the training, until the final step
    levels_until: ClassVar[float] = 0.4  # of the training, until all levels are active

    def check(self) -> None:
        """Raises ConfigError for increasing step sizes and a budget below one ray."""
        if self.last_step > self.first_step:
            raise ConfigError(
                f"model.{self.block}.last_step = {self.last_step:g}: must not be above first_step = {self.first_step:g}"
            )
        most = math.ceil(SPAN_LENGTH / self.last_step) + 1
        share = max(self.anywhere, POINTS_SHARE)
        if self.samples - int(share * self.samples) < most:
            raise ConfigError(
                f"model.{self.block}.samples = {self.samples}: a single ray may have {most} samples at last_step = "
                f"{self.last_step:g}, and {share:.0%} of the samples are reserved for random and SfM points; raise "
                "samples or last_step"
            )


@dataclass(frozen=True)
class PackedConfig(SamplesConfig):
    """Sampling of a surface."""

    # Learning rates relative to that of the grid. With 1 and 1, the Chamfer distance of the jug is a sixth larger.
    network_rate: ClassVar[float] = 0.5
    sharpness_rate: ClassVar[float] = 0.4


@dataclass(frozen=True)
class InsideConfig:
    """Cells inside the visual hull of masks."""

    hull_margin: float = limits(0.07, at_least=0, at_most=SPAN_LENGTH)
    # Above 4, a single sample has all the weight of a ray, and edges are sharper than the pixels that average them.
    largest_inv_s: float | Auto = limits(AUTO, at_least=0.01, at_most=1000)
    prune_from: float = share(0.2)

    shell: ClassVar[float] = 5.0  # cells farther from the surface, in 1 / inv_s, are empty or inside


@dataclass(frozen=True)
class OpenConfig:
    """Cells without masks, and sampling outside the unit sphere."""

    samples: int = limits(8192, at_least=64, at_most=MOST_PACKED)
    section: float = limits(0.12, at_least=LEAST_SECTION, at_most=1)
    cells: int = limits(64, at_least=8, at_most=512)
    prune_from: float | Auto = share(AUTO)
    blur_step: float = limits(2.0, at_least=0, at_most=1e6)  # 0: DTU 24 0.3 dB less
    depth_until: float = share(0.0)  # without: 90 % of points of jug_on_table and DTU 24 a quarter to a third worse

    shell: ClassVar[float] = 10.0  # as in InsideConfig
    threshold: ClassVar[float] = 0.01  # cells that absorb a smaller fraction of the light are empty

    def check(self) -> None:
        """Raises ConfigError for a budget below one ray, of a camera up to about twenty radii away."""
        most = math.ceil(2.0 * math.log(BACKGROUND_RADIUS) / self.section)
        if self.samples < most:
            raise ConfigError(
                f"model.open.samples = {self.samples}: a single ray may have {most} samples at section = "
                f"{self.section:g}; raise samples or section"
            )


@dataclass(frozen=True)
class RadianceConfig(SamplesConfig):
    """Sampling of a radiance field."""

    block: ClassVar[str] = "radiance"
    anywhere: ClassVar[float] = 0.0
    steps_until: ClassVar[float] = 0.3
    levels_until: ClassVar[float] = 0.3
    hull_margin: ClassVar[float] = 0.02  # dilation of the masks' visual hull
    threshold: ClassVar[float] = 0.05  # cells that absorb a smaller fraction of the light are empty

    samples: int = limits(16384, at_least=64, at_most=MOST_PACKED)
    first_step: float = limits(0.02, at_least=LEAST_STEP, at_most=SPAN_LENGTH / 2)
    last_step: float = limits(0.01, at_least=LEAST_STEP, at_most=SPAN_LENGTH / 2)
    first_levels: int = limits(6, at_least=1, at_most=LARGEST_LEVELS)
    prune_from: float = share(0.02)
    prune_every: int = every(32, least=1)
