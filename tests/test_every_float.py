"""Operations over all of float32: bit patterns drawn by search, each result against float64."""

import ctypes

import numpy as np
import pytest
from forms import HEADER, build, in_form, only_on_the_cpu
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.machine.backend import jt
from models.ops import grid_sdf, sdf_mlp
from models.ops.source import CUDA, NATIVE, REFERENCE
from models.ops.update import AdamStep, Update, adam
from models.ops.volrend import ALPHA_SOURCE

LARGEST = 1e18  # of what Adam is given; the square of more comes near float32's largest number
RATE, COUNT = 1e-2, 8  # numbers of a drawn array
# Subnormal and smallest normal numbers, zeros, the largest: a search over bits alone seldom meets them together.
CORNERS = [0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.17549435e-38, 1e-37, 3e-20, 1e-19, 1e-10, 1.0, -1.0, 3e9, 1e18, -1e18]
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _finite(bits):
    value = np.uint32(bits).view(np.float32)
    return bool(np.isfinite(value)) and abs(value) <= LARGEST


FLOATS = st.sampled_from(CORNERS) | st.integers(0, 2**32 - 1).filter(_finite).map(
    lambda bits: float(np.uint32(bits).view(np.float32))
)
ARRAYS = st.lists(FLOATS, min_size=COUNT, max_size=COUNT).map(np.float32)


def adam_in_float64(parameter, gradient, first, second, step):
    """The parameter after a step and the step itself: arXiv 1412.6980, algorithm 1."""
    parameter, gradient, first, second = (value.astype(np.float64) for value in (parameter, gradient, first, second))
    first = step.beta_1 * first + (1 - step.beta_1) * gradient
    second = step.beta_2 * second + (1 - step.beta_2) * gradient**2
    change = float(np.float32(RATE)) * first / (np.sqrt(second) * step.root + step.epsilon)
    return parameter - change, change, first, second


@pytest.mark.slow
@pytest.mark.parametrize("form", [NATIVE, REFERENCE])
@SETTINGS
@given(*[ARRAYS] * 4, st.sampled_from([(0.999, 1e-8), (0.99, 1e-15), (0.0, 1e-8)]), st.sampled_from([1, 2, 5000]))
def test_adam_is_exact_for_any_finite_numbers(form, parameter, gradient, first, second, constants, count):
    second, step = np.abs(second), AdamStep.after(count, *constants)
    before = Update([jt.array(parameter)], [jt.array(first)], [jt.array(second)], jt.array(np.ones(1, bool)))
    with in_form(form):
        after = adam(before, [jt.array(gradient)], [RATE], step)
        found = [value.numpy() for value in (*after.parameters, *after.exp_avg, *after.exp_avg_sq)]
        assert after.taken.item()
    expected, change, *moments = adam_in_float64(parameter, gradient, first, second, step)
    rounding = np.abs(np.spacing(found[0])).astype(np.float64)
    np.testing.assert_array_less(np.abs(found[0] - expected), 1e-6 * np.abs(change) + rounding)
    for moment, exact in zip(found[1:], moments, strict=True):
        np.testing.assert_allclose(moment, exact, rtol=1e-6, atol=1.2e-38)


# Functions of the texts for the CPU, by themselves


def applied(source, call, values, lanes=1):
    """What a C++ expression of `x` gives for each of an array's values; with `lanes`, for vectors of them."""
    kind = "neus::Unaligned" if lanes > 1 else "float"
    loop = f"""
        for (long i = 0; i < in0->num; i += {"neus::LANES" if lanes > 1 else 1}) {{
            const {kind} x = *(const {kind} *)(in0_p + i);
            *({kind} *)(out0_p + i) = {call};
        }}"""
    padded = np.concatenate([values, np.zeros(-len(values) % 16, np.float32)])  # 16: the longest vector
    out = jt.code(padded.shape, "float32", [jt.array(padded)], cpu_header=source.text(), cpu_src=loop)
    return out.numpy()[: len(values)]


def any_floats(rng, count=1 << 16):
    """Finite numbers by their bits: as many of each exponent as of any other."""
    values = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    return np.concatenate([values[np.isfinite(values)], np.float32(CORNERS), np.float32([3.4e38, -3.4e38])])


def units(actual, exact):
    """Errors in units of the last place of the exact value, subnormal ones included."""
    return np.abs(actual.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)


@only_on_the_cpu
def test_logistic_softplus_and_exponential_are_right_for_every_number():
    x = any_floats(np.random.default_rng(0))
    wide = x.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        logistic = 1 / (1 + np.exp(-wide))
        softplus = np.maximum(wide, 0) + np.log1p(np.exp(-100 * np.abs(wide))) / 100
        slope = np.where(wide > 0, 1.0, np.exp(-100 * np.abs(wide))) / (1 + np.exp(-100 * np.abs(wide)))
        power = np.exp(np.maximum(-np.abs(wide), -87.0))
    found = applied(ALPHA_SOURCE, "neus::sigmoid(x)", x)
    np.testing.assert_allclose(found, logistic, rtol=1e-6, atol=1e-38)
    slope_of = "[&] { neus::Vec s; neus::softplus(x, &s); return s; }()"  # 100 x is rounded: up to 87 * 6e-8
    for call, exact, rtol, atol in (
        ("neus::softplus(x, nullptr)", softplus, 1e-6, 1e-9),
        (slope_of, slope, 7e-6, 1e-37),
        ("neus::exp_negative(x > 0.f ? -x : x)", power, 1e-6, 0),
    ):
        found = applied(grid_sdf.SOURCE, call, x, lanes=16)
        np.testing.assert_allclose(found, exact, rtol=rtol, atol=atol, err_msg=call)
    nan = np.float32([np.nan] * 16)
    assert np.isnan(applied(ALPHA_SOURCE, "neus::sigmoid(x)", nan)).all()
    for call in ("neus::softplus(x, nullptr)", "neus::exp_negative(x)", "neus::Positive()(x, 0, 0)"):
        assert np.isnan(applied(grid_sdf.SOURCE, call, nan, lanes=16)).all(), call


def on_cuda(values):
    """Softplus of sharpness 100 and its slope from its value, of the text for CUDA, which emulation compiles.

    It takes powers of 2 with the largest error of the instruction.
    """
    call = """
        extern "C" void run(long count, const float *x, float *value, float *slope) {
            for (long i = 0; i < count; i++) value[i] = neus::softplus(x[i]), slope[i] = neus::softplus_slope(x[i]);
        }"""
    built = build(f'#include "{HEADER.name}"\n{sdf_mlp.SOURCE.text(CUDA)}\n{call}')
    found = np.empty((2, len(values)), np.float32)
    pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (values, *found))
    built.run(ctypes.c_long(len(values)), *pointers)
    return found


def test_softplus_on_cuda_has_an_error_of_2e_9_and_that_of_rounding():
    rng = np.random.default_rng(0)
    x = np.concatenate([any_floats(rng), rng.uniform(-0.3, 0.3, 1 << 16).astype(np.float32)])
    value, slope = on_cuda(x)
    wide = x.astype(np.float64)
    exact = np.maximum(wide, 0) + np.log1p(np.exp(-100 * np.abs(wide))) / 100
    rounding = np.spacing(exact.astype(np.float32)).astype(np.float64) / 2
    assert (np.abs(value - exact) <= 2e-9 + rounding).all()
    positive = x >= 0
    exact = -np.expm1(-100 * wide[positive])
    assert (np.abs(slope[positive] - exact) <= 100 * 2e-9).all()
    assert np.isnan(on_cuda(np.float32([np.nan]))).all()


@only_on_the_cpu
def test_functions_of_the_library_are_within_four_units_of_the_last_place():
    """Vectorised, as in all that is compiled; the bound is that of glibc's vector functions."""
    rng = np.random.default_rng(0)
    x, small = any_floats(rng), np.float32(rng.uniform(-1e4, 1e4, 1 << 12))
    for name, function, values in (
        ("exp", np.exp, x[np.abs(x) < 80]),
        ("log", np.log, np.abs(x[x != 0])),
        ("sin", np.sin, small),
        ("cos", np.cos, small),
        ("sqrt", np.sqrt, np.abs(x)),
    ):
        loop = f"for (long i = 0; i < in0->num; i++) out0_p[i] = std::{name}(in0_p[i]);"
        out = jt.code(values.shape, "float32", [jt.array(values)], cpu_src=loop).numpy()
        worst = units(out, function(values.astype(np.float64))).max()
        assert worst <= (0.51 if name == "sqrt" else 4), (name, worst)
