"""The block `model` of a conf, as every kind of model has one. Knows no Jittor."""

from __future__ import annotations

from typing import Protocol, Self


class ModelConfig(Protocol):
    """What the rest of the program reads of it; a frozen dataclass, whose fields are the keys and blocks."""

    type: str

    def check(self) -> None:
        """Raises ConfigError for what cannot work together."""

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that weights depend on."""

    @property
    def n_importance(self) -> int | None:
        """The size that memory hangs on most: what `--mode plan` varies; None where there is none such."""

    def allows_importance(self, count: int) -> bool:
        """Whether n_importance could be `count`."""

    def with_importance(self, count: int) -> Self:
        """The same with `count` as n_importance."""

    @property
    def needs_masks(self) -> bool:
        """Whether train.mask_weight above 0 is a mistake where the scene has no masks."""

    @property
    def memory_keys(self) -> str:
        """The keys to lower where one entry of a batch does not fit, for messages; "" for none."""

    @property
    def parameters(self) -> int:
        """Trained numbers; the most that there may be where their number changes."""

    @property
    def ray_numbers(self) -> int:
        """float32 numbers that a step keeps of each entry of a batch, at the least."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the arrays beside the networks that a checkpoint holds, at the most."""

    def fitting(self, free: int, size: tuple[int, int]) -> str:
        """What `--mode plan` adds: how much of the model fits `free` bytes at pictures of (width, height); or ""."""

    @property
    def sees_from_within(self) -> bool:
        """Whether cameras may stand within the region of interest."""

    @property
    def trains_on_points(self) -> bool:
        """Whether `data.parsed_scene.training_points` of the scene take part in training: then they bear no witness."""


class PlainBlock:
    """What a block gets for nothing: nothing to check, no size that `--mode plan` could vary, no buffers, no points."""

    def check(self) -> None:
        """Every value within its limits will do."""

    @property
    def n_importance(self) -> int | None:
        """None."""
        return None

    def allows_importance(self, count: int) -> bool:
        """Never."""
        del count
        return False

    def with_importance(self, count: int) -> Self:
        """The same block."""
        del count
        return self

    @property
    def needs_masks(self) -> bool:
        """Yes: what was asked for cannot be done."""
        return True

    @property
    def memory_keys(self) -> str:
        """None."""
        return ""

    @property
    def ray_numbers(self) -> int:
        """Nothing that is known beforehand."""
        return 0

    @property
    def buffer_bytes(self) -> int:
        """None."""
        return 0

    def fitting(self, free: int, size: tuple[int, int]) -> str:
        """Nothing."""
        del free, size
        return ""

    @property
    def sees_from_within(self) -> bool:
        """Rays are sampled about the middle of the region, wherever the camera is."""
        return False

    @property
    def trains_on_points(self) -> bool:
        """Photographs alone."""
        return False
