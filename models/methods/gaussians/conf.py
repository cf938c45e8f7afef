"""The block `model` for model.type = gaussians. Does not import Jittor."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.blocks import PhotographsConfig
from models.config.strict import ConfigError, limits, share
from models.machine.available import FLOAT_BYTES
from models.methods.block import TRAINED_COPIES, ModelConfig

GAUSSIANS = "gaussians"
ELLIPSOIDS, SURFELS = "ellipsoids", "surfels"
# Measured float32 numbers per Gaussian in the passes of the rasteriser, including what the memory pool keeps for
# earlier sizes: 40,000 surfels take 4.2 kB each, besides images.
RASTER_NUMBERS = 650
PIXEL_NUMBERS = 120  # per pixel: images, cotangents, and intermediate images of SSIM


@dataclass(frozen=True)
class SplatsConfig:
    """Form and number of the Gaussians."""

    form: str = limits(ELLIPSOIDS, one_of=(ELLIPSOIDS, SURFELS))
    degree: int = limits(3, at_least=0, at_most=3)
    first: int = limits(20000, at_least=1, at_most=10_000_000)
    most: int = limits(60000, at_least=1, at_most=10_000_000)
    structure_share: float = share(0.2)

    @property
    def rest(self) -> int:
        """Coefficients of a colour channel beyond the first; at least one, which is unused for degree 0."""
        return max(1, (self.degree + 1) ** 2 - 1)

    @property
    def numbers(self) -> int:
        """Trained parameters per Gaussian."""
        return 3 + 4 + 3 + 1 + 3 + 3 * self.rest


@dataclass(frozen=True)
class GaussiansConfig(ModelConfig):
    """The block `model` of Gaussians."""

    gaussians: SplatsConfig = SplatsConfig()
    photographs: PhotographsConfig = PhotographsConfig()
    type: str = GAUSSIANS
    needs_masks = False  # masks are used if there are any
    sees_from_within = True  # Gaussians are projected into each camera
    sizes = ("gaussians.first", "gaussians.most")

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        first, most = self.gaussians.first, self.gaussians.most
        if first > most:
            raise ConfigError(
                f"model.gaussians.first = {first}: must not be above most = {most}; lower it, or raise most"
            )

    @property
    def parameters(self) -> int:
        """An upper bound of the trained parameters."""
        return self.gaussians.most * self.gaussians.numbers

    def fitting(self, free: int, size: tuple[int, int]) -> str:
        """How many Gaussians fit besides the images of a step."""
        left = free - PIXEL_NUMBERS * FLOAT_BYTES * size[0] * size[1]
        each = FLOAT_BYTES * (TRAINED_COPIES * self.gaussians.numbers + RASTER_NUMBERS)
        count = max(0, left // each)
        verdict = "fits" if self.gaussians.most <= count else "does not fit"
        return (
            f"at {size[0]}x{size[1]} pixels {count} Gaussians fit, {each} bytes each; model.gaussians.most = "
            f"{self.gaussians.most} {verdict}"
        )
