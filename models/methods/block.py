"""The interface of the conf block `model`, common to all methods. Does not import Jittor."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self

# A parameter with its gradient, its two moments, and the new weight and moments of a step.
TRAINED_COPIES = 7


class ModelConfig(Protocol):
    """The block `model`: a frozen dataclass with keys and sub-blocks as fields. Most members have a default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    type: str

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        return

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the shapes of the weights."""

    @property
    def n_importance(self) -> int | None:
        """The size that memory depends on most, which `--mode plan` varies; None if there is none."""
        return None

    def allows_importance(self, count: int) -> bool:
        """Whether n_importance could be `count`."""
        del count
        return False

    def with_importance(self, count: int) -> Self:
        """The same block with `count` as n_importance."""
        del count
        return self

    @property
    def needs_masks(self) -> bool:
        """Whether train.mask_weight above 0 is an error for a scene without masks."""
        return True

    @property
    def memory_keys(self) -> str:
        """The keys to lower if one entry of a batch does not fit, for messages; "" for none."""
        return ""

    @property
    def parameters(self) -> int:
        """The number of trained parameters; the maximum if it changes during training."""

    @property
    def ray_numbers(self) -> int:
        """A lower bound of the float32 numbers that a step stores per entry of a batch."""
        return 0

    @property
    def buffer_bytes(self) -> int:
        """An upper bound of the bytes of the arrays in a checkpoint besides the networks."""
        return 0

    def fitting(self, free: int, size: tuple[int, int]) -> str:
        """A line for `--mode plan`: how much of the model fits `free` bytes for images of (width, height); or ""."""
        del free, size
        return ""

    @property
    def sees_from_within(self) -> bool:
        """Whether cameras may be inside the region of interest."""
        return False
