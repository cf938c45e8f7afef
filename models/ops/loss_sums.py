"""The sums that losses of rays are made of: pure functions on Vars, and those of NeuS's loss as one operation.

R rays, P points. NeuS: arXiv 2106.10689, section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.machine.backend import jt
from models.ops.elementwise import hard_clip, length, magnitude
from models.ops.kernel import Kernel
from models.ops.network import shapes32
from models.ops.source import Source
from models.structs import Var

# Opacities are kept this far from 0 and 1 in the mask loss; beyond it a ray gets no gradient (as published).
OPACITY_MARGIN = 1e-3


@dataclass(frozen=True)
class LossSums:
    """The layout."""

    points: int  # P
    given: int = 0  # bit k is set where the loss depends on sum k
    margin: float = OPACITY_MARGIN


@dataclass(frozen=True)
class Sums:
    """All [1]."""

    color: Var
    mask: Var
    eikonal: Var
    in_mask: Var  # constant, the count that `color` goes with
    near: Var  # constant, that of `eikonal`


SOURCE = Source("loss_sums.h", (LossSums,))


def color_sum(rgb: Var, target: Var, mask: Var) -> Var:
    """|rgb - target| over channels and rays [R, 3] within the mask [R, 1]."""
    return (magnitude(rgb - target) * mask).sum()


def eikonal_sum(gradient: Var, near: Var) -> Var:
    """(|gradient| - 1)^2 where near [...] is 1; gradient [..., 3]."""
    return (near * (length(gradient) - 1.0).sqr()).sum()


def mask_sum(opacity: Var, mask: Var) -> Var:
    """Binary cross-entropy of opacities, which are probabilities already, against a 0/1 mask; both [R, 1]."""
    probability = hard_clip(opacity, OPACITY_MARGIN, 1.0 - OPACITY_MARGIN)
    likelihood = mask * probability.log() + (1.0 - mask) * (1.0 - probability).log()
    return -likelihood.sum()


def _reference(rgb: Var, opacity: Var, gradient: Var, target: Var, mask: Var, near: Var) -> Sums:
    """The sums of rays, rgb and target [R, 3], opacity and mask [R, 1], and points: gradient [..., 3], near [...]."""
    return Sums(
        color_sum(rgb, target, mask), mask_sum(opacity, mask), eikonal_sum(gradient, near), mask.sum(), near.sum()
    )


def _native(rgb: Var, opacity: Var, gradient: Var, target: Var, mask: Var, near: Var) -> Sums:
    """One operation each way."""
    return Sums(*_Sums([rgb, opacity, gradient, target, mask, near])(rgb, opacity, gradient))


class _Sums(jt.Function):
    """Keeps its inputs only."""

    def __init__(self, inputs: list[Var]) -> None:
        super().__init__()
        self.inputs = inputs
        self.points = inputs[-1].numel()

    def execute(self, *rendered: Var) -> tuple[Var, ...]:
        """The sums."""
        inputs = [*rendered, *self.inputs[3:]]
        return tuple(SOURCE.call("loss_sums", LossSums(self.points), shapes32(*[(1,)] * 5), inputs))

    def grad(self, *cotangents: Var | None) -> tuple[Var, ...]:
        """Cotangents of what was rendered; the counts are constants."""
        sums = cotangents[:3]
        layout = LossSums(self.points, sum(1 << index for index, value in enumerate(sums) if value is not None))
        present = [self.inputs[0] if value is None else value for value in sums]  # what is not given is not read
        outputs = shapes32(*(value.shape for value in self.inputs[:3]))
        return tuple(SOURCE.call("loss_sums_backward", layout, outputs, [*self.inputs, *present]))


# On the CPU the reference is as good: rays are few, and what counts there are points.
loss_sums = Kernel(_reference, cuda=_native)
