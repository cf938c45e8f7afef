"""What pulls at splats, added up between two changes of their number (`densify = adaptive`). N splats."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.machine.backend import jt
from models.structs import Var

PULL, LOOKS = "pull", "looks"  # names of the sums in checkpoints


class Pulled:
    """Of each splat, the sum over views of the gradient of its projected centre, and by how many views it was seen."""

    def __init__(self) -> None:
        self._sums: tuple[Var, Var] | None = None  # [N] each, on the device; None: nothing yet

    def add(self, gradient: Var, radii: Var, scale: tuple[float, float]) -> None:
        """What a view says; starts the computation and does not wait for it.

        Args:
            gradient: [N, 2] of the loss, by pixels; `scale` times it is in half pictures.
            radii: int32 [N, 2], 0 where the view does not see a splat.
        """
        x, y = (gradient.detach()[:, k] * factor for k, factor in enumerate(scale))
        length, is_seen = (x.sqr() + y.sqr()).sqrt(), radii.detach()[:, 0] > 0
        pull, looks = jt.ternary(is_seen, length, jt.zeros_like(length)), is_seen.float32()
        if self._sums is not None:
            pull, looks = pull + self._sums[0], looks + self._sums[1]
        self._sums = (pull.stop_grad(), looks.stop_grad())
        jt.sync(list(self._sums))  # at once, so that the gradient is not held

    def forget(self) -> None:
        """Begin anew."""
        self._sums = None

    def mean(self, count: int) -> np.ndarray:
        """float32 [N], over the views that saw a splat, of N = `count`."""
        sums = self.buffers(count)
        return sums[PULL] / np.maximum(sums[LOOKS], 1.0)

    def buffers(self, count: int) -> dict[str, np.ndarray]:
        """The sums by name, float32 [N]."""
        arrays = [np.zeros(count, np.float32)] * 2 if self._sums is None else [value.numpy() for value in self._sums]
        return dict(zip((PULL, LOOKS), arrays, strict=True))

    def load_buffers(self, buffers: Mapping[str, np.ndarray], count: int) -> None:
        """Take them back; raises ValueError where they do not fit."""
        for name in (PULL, LOOKS):
            found = buffers.get(name)
            if found is None or found.shape != (count,) or found.dtype != np.float32:
                raise ValueError(f"its buffer {name} does not fit its splats")
        self._sums = None
        if buffers[LOOKS].any():
            self._sums = (jt.array(buffers[PULL]).stop_grad(), jt.array(buffers[LOOKS]).stop_grad())
