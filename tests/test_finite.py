"""Sampling and volume rendering stay finite, in value and gradient, wherever their mathematics is.

Magnitudes run from 1e-30 to 1e30. Expected: finite where float64 says that the true result fits float32.
"""

import numpy as np
import pytest
from dense_renderer import dense_weights, tiny_renderer
from forms import FORMS, in_form
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data.rays import Rays
from models.estimators.base import upload
from models.fields.state import export_state, import_state
from models.machine.backend import jt
from models.ops import volrend
from models.ops.upsample import upsample
from models.ops.volrend import INV_S_MAX, INV_S_MIN
from models.rendering.losses import mask_term, mean_term

EXAMPLES = 60
N = 6
FEW = settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
MAGNITUDES = st.one_of(st.just(0.0), st.integers(-30, 30).map(lambda exponent: 10.0**exponent))
SIGNED = st.builds(lambda value, sign: value * sign, MAGNITUDES, st.sampled_from([-1.0, 1.0]))
INV_S = st.sampled_from([INV_S_MIN, 1e-3, 1.0, 64.0, 512.0, INV_S_MAX])


def row(values):
    return st.lists(values, min_size=N, max_size=N).map(lambda entries: np.float32([entries]))


def ascending(values):
    return row(values).map(lambda entries: np.sort(entries, axis=1))


def finite(function, *arrays):
    """Assert that the outputs and the gradients of their sum by every array are finite; returns the outputs."""
    inputs = [jt.array(array) for array in arrays]
    outputs = function(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    gradients = jt.grad(sum(output.float32().sum() for output in outputs), inputs)
    values = [output.numpy() for output in outputs]
    for value in (*values, *(gradient.numpy() for gradient in gradients)):
        assert np.isfinite(value).all(), (value, arrays)
    return values


# volume rendering


@pytest.mark.slow
@FEW
@given(row(SIGNED), row(MAGNITUDES), row(MAGNITUDES), INV_S)
@example(np.full((1, N), 1e3, np.float32), np.ones((1, N), np.float32), np.zeros((1, N), np.float32), INV_S_MAX)
@example(np.full((1, N), 1e30, np.float32), *np.full((2, 1, N), 1e30, np.float32), INV_S_MAX)
def test_opacities_and_weights_of_sections(sdf, descent, lengths, inv_s):
    # The cotangents are exact zeros or below 1e5 * inv_s * length: beyond float32 only where a section of more than
    # 1e26 straddles the surface, which no ray of the unit sphere's frame has.
    steep = (np.abs(sdf) / inv_s < 1.0) & (lengths > 1e26)
    sharp = (np.abs(sdf) * inv_s < 100.0) & ((descent > 1e24) | (lengths > 1e24))
    lengths = np.where(steep | sharp, np.float32(1.0), lengths)
    descent = np.where(steep | sharp, np.float32(1.0), descent)

    def rendered(sdf, slope, lengths, inv_s):
        entry, exit_ = volrend.interval_cdfs(sdf, slope, lengths, inv_s)
        alpha = volrend.alpha_from_cdfs(entry, exit_).clamp(0.0, 1.0)
        return entry, exit_, dense_weights(alpha)

    *_, weights = finite(rendered, sdf, -descent, lengths, np.float32([inv_s]))
    assert (weights >= 0.0).all() and weights.sum() <= 1.0 + 1e-4


# sampling


@pytest.mark.parametrize("path", FORMS[:3])
@FEW
@given(
    depths=ascending(MAGNITUDES),
    sdf=row(SIGNED),
    origin=st.lists(SIGNED, min_size=3, max_size=3),
    inv_s=st.sampled_from([64.0, 512.0, INV_S_MAX]),
)
@example(depths=np.ones((1, N), np.float32), sdf=np.zeros((1, N), np.float32), origin=[0.0, 0.0, 0.0], inv_s=64.0)
def test_an_up_sampling_round(path, depths, sdf, origin, inv_s):
    with in_form(path):
        vars_ = (jt.array(array) for array in (np.float32([origin]), np.float32([[0, 0, 1]]), depths, sdf))
        new, merged, order = (var.numpy() for var in upsample(*vars_, inv_s, 4))
    slack = 1e-5 * depths.max()
    assert np.isfinite(new).all() and (new >= depths.min() - slack).all() and (new <= depths.max() + slack).all()
    assert (np.diff(merged, axis=1) >= 0.0).all() and sorted(order[0]) == list(range(N + 4))


# whole rays


def rays_of(kind):
    """Three rays each."""
    special = {"missing": [0.0, 5.0, -3.0], "far away": [0.0, 0.2, -1e3], "tangent": [0.0, 1.0, -3.0]}
    origins = np.tile(np.float32(special.get(kind, [0.0, 0.1, -3.0])), (3, 1))
    directions = np.tile(np.float32([0.0, 0.0, 1.0]), (3, 1))
    middle = -(origins * directions).sum(axis=1, keepdims=True)
    span = np.float32(0.0 if kind == "no length" else 1.0)
    return Rays(origins, directions, middle - span, middle + span)


@pytest.mark.parametrize("path", FORMS[:3])
@pytest.mark.parametrize("kind", ["through", "missing", "tangent", "no length", "far away"])
@pytest.mark.parametrize(
    ("variance", "bias", "n_outside"), [(0.3, 0.0, 3), (-2.0, 0.0, 0), (2.0, 0.0, 3), (2.0, 1e3, 0), (2.0, -1e3, 3)]
)
def test_loss_and_weight_gradients_of_hard_rays(path, n_outside, kind, variance, bias):
    renderer = tiny_renderer(n_outside=n_outside)
    state = export_state(renderer.fields.sdf)
    state["lin2.bias"][0] += bias
    import_state(renderer.fields.sdf, state)
    import_state(renderer.fields.sharpness, {"variance": np.float32(variance)})
    noise = {"inside": np.float32([[0.0], [0.5], [0.99]]), "outside": np.full((3, n_outside), 0.5, np.float32)}
    with in_form(path):
        output = renderer.render(upload(rays_of(kind)), noise, 0.5)
        mask = jt.array(np.float32([[0], [1], [1]]))
        total = mean_term("ABSOLUTE", output.rgb, jt.zeros((3, 3)), jt.ones((3, 1))).mean()
        total = total + mean_term("UNIT_LENGTH", output.sdf_gradient, counts=output.near_sphere).mean()
        total = total + mask_term(output.opacity, mask).mean()
        fields = [field for field in vars(renderer.fields).values() if field is not None]
        gradients = jt.grad(total, [value for field in fields for value in field.parameters()])
    shown = (output.rgb, output.opacity, output.weights, output.depths, output.sdf_gradient, total)
    assert all(np.isfinite(value.numpy()).all() for value in (*shown, *gradients))
