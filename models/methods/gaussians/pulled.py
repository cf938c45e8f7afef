"""Gradient statistics of Gaussians between two changes of their number (`densify = adaptive`). N Gaussians."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.machine.backend import jt
from models.structs import Var

PULL, LOOKS = "pull", "looks"  # names of the sums in checkpoints


class Pulled:
    """Per Gaussian: the sum over views of the norm of its means2d gradient, and the number of views that see it."""

    def __init__(self) -> None:
        self._sums: tuple[Var, Var] | None = None  # [N] each, on the device; None before the first view

    def add(self, gradient: Var, radii: Var, scale: tuple[float, float]) -> None:
        """Add a view; starts the computation and does not wait for it.

        Args:
            gradient: [N, 2] of the loss, per pixel; multiplied by `scale` it is in units of half an image.
            radii: int32 [N, 2], 0 if the view does not see a Gaussian.
        """
        x, y = (gradient.detach()[:, k] * factor for k, factor in enumerate(scale))
        length, is_seen = (x.sqr() + y.sqr()).sqrt(), radii.detach()[:, 0] > 0
        pull, looks = jt.ternary(is_seen, length, jt.zeros_like(length)), is_seen.float32()
        if self._sums is not None:
            pull, looks = pull + self._sums[0], looks + self._sums[1]
        self._sums = (pull.stop_grad(), looks.stop_grad())
        jt.sync(list(self._sums))  # now, so that the gradient is freed

    def forget(self) -> None:
        """Reset the sums."""
        self._sums = None

    def mean(self, count: int) -> np.ndarray:
        """float32 [N], means over the views that see a Gaussian; N = `count`."""
        sums = self.buffers(count)
        return sums[PULL] / np.maximum(sums[LOOKS], 1.0)

    def buffers(self, count: int) -> dict[str, np.ndarray]:
        """The sums by name, float32 [N]."""
        arrays = [np.zeros(count, np.float32)] * 2 if self._sums is None else [value.numpy() for value in self._sums]
        return dict(zip((PULL, LOOKS), arrays, strict=True))

    def load_buffers(self, buffers: Mapping[str, np.ndarray], count: int) -> None:
        """Restore the sums; raises ValueError if they do not fit."""
        for name in (PULL, LOOKS):
            found = buffers.get(name)
            if found is None or found.shape != (count,) or found.dtype != np.float32:
                raise ValueError(f"its buffer {name} does not fit its splats")
        self._sums = None
        if buffers[LOOKS].any():
            self._sums = (jt.array(buffers[PULL]).stop_grad(), jt.array(buffers[LOOKS]).stop_grad())
