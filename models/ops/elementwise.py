"""Element-wise operations that replace Jittor's, where those differ from the published code in value or gradient,
or crash.
"""

from __future__ import annotations

from models.machine.backend import jt
from models.structs import Var

_LARGE = 1e15  # larger components are scaled before they are squared, to avoid overflow
_UNIT = 2.0**80  # a power of two, so that scaling is exact
_FINITE_KERNEL = "__global__ static void finite_kernel(const float *x, bool *is) { *is = isfinite(*x); }"
SMALLEST_SQUARE = 1e-30  # a length of 1e-15: below all relevant lengths, above float32's smallest number


class _Softplus(jt.Function):
    """Softplus with the derivative written as a sigmoid: Jittor's has gradient 0 where beta x = 20 exactly."""

    def __init__(self, original: Var, beta: float) -> None:
        super().__init__()
        self.original = original  # not the taped input of execute, which would stop the second derivative
        self.beta = beta

    def execute(self, x: Var) -> Var:
        """The value, in a form that does not overflow; 0 for beta x < -16, where it is below 1e-7 / beta."""
        return jt.maximum(x, 0.0) + (1.0 + (-(x * self.beta).abs()).exp()).log() / self.beta

    def grad(self, cotangent: Var) -> Var:
        """Ordinary operations on the original input, which are differentiable again."""
        return cotangent * (self.original * self.beta).sigmoid()


def softplus(x: Var, beta: float = 1.0) -> Var:
    """log(1 + exp(beta x)) / beta, any shape; differentiable to any order. Its derivative is sigmoid(beta x)."""
    return _Softplus(x, beta)(x)


def hard_clip(x: Var, low: float, high: float) -> Var:
    """x clamped to [low, high]; the gradient is 1 in the closed interval and 0 outside (as PyTorch's clip).

    Jittor's `clamp` has gradient 0 at the ends, its `safe_clip` gradient 1 everywhere.
    """
    above = jt.ternary(x > high, jt.full_like(x, high), x)
    return jt.ternary(x < low, jt.full_like(x, low), above)


def magnitude(x: Var) -> Var:
    """|x| with gradient 0 at 0 (Jittor's `abs` has +1 there)."""
    sign = (x > 0.0).float32() - (x < 0.0).float32()
    return x * sign.stop_grad()


def length(x: Var, keepdims: bool = False) -> Var:
    """Euclidean length along the last axis, with gradient 0 at the zero vector; differentiable twice elsewhere."""
    is_large = (x.detach().abs().max(dim=-1, keepdims=True) > _LARGE).float32()
    unit = (is_large * (_UNIT - 1.0) + 1.0).stop_grad()
    scaled = (x / unit).sqr().sum(dim=-1, keepdims=keepdims)
    return jt.maximum(scaled, SMALLEST_SQUARE).sqrt() * (unit if keepdims else unit.squeeze(-1))


def is_finite(x: Var) -> Var:
    """Whether one number [1] is finite, bool [1].

    Jittor's `isfinite` calls Python during compilation from threads without a Python thread state, which is a
    segmentation fault from Python 3.12 on (Jittor 1.3.11, src/parallel_compiler.cc and src/pyjt/py_caller.cc).
    """
    on_gpu = {"cuda_header": _FINITE_KERNEL, "cuda_src": "finite_kernel<<<1, 1>>>(in0_p, out0_p);"}
    return jt.code((1,), "bool", [x], cpu_src="*out0_p = std::isfinite(*in0_p);", **on_gpu)
