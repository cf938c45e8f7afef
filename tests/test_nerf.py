"""The background network: both ways through it against the float64 statement, against each other, and in detail."""

import dataclasses
import itertools

import numpy as np
import oracles
import pytest
from dense_renderer import NERF, params64, roughen
from forms import FORMS, OWN_FORMS, in_form
from gradcheck import assert_grad_close, central_differences, some_entries

from models.fields.radiance import NeRF
from models.fields.state import named_parameters
from models.machine.backend import jt
from models.ops.source import REFERENCE, use

COUNT = 70  # more than one block of the native operation, the last one not full
RNG = np.random.default_rng(0)
VIEWS = (lambda v: v / np.linalg.norm(v, axis=1, keepdims=True))(RNG.normal(size=(COUNT, 3))).astype(np.float32)
POINTS = np.hstack([VIEWS[::-1], RNG.uniform(0.05, 1.0, (COUNT, 1))]).astype(np.float32)
COTANGENTS = RNG.normal(size=(COUNT, 3)).astype(np.float32)
CONFS = {
    "one skip": {},
    "two skips, odd width": {"skips": (0, 2), "D": 4, "W": 37, "multires": 4, "multires_view": 0},
    "three coordinates, one layer": {"d_in": 3, "multires": 0, "D": 1, "skips": ()},
    "the released encodings": {"multires": 10, "multires_view": 4, "W": 48},
}
# The sine of an angle of 2^9 is known to 2^9 roundings of the angle.
ATOL = dict.fromkeys(CONFS, 1e-5) | {"the released encodings": 2e-4}


@pytest.fixture(params=FORMS)
def path(request):
    """All ways through a network."""
    with in_form(request.param):
        yield


def network_of(name):
    conf = dataclasses.replace(NERF, **CONFS[name])
    return roughen(NeRF(conf, np.random.default_rng(1)), 2), conf


def inputs_of(conf, count=COUNT):
    return np.resize(POINTS, (count, 4))[:, : conf.d_in].copy(), np.resize(VIEWS, (count, 3))


def weight_gradients(network, points, views, *selected, cotangents=COTANGENTS):
    """d (density^2 + colour . known numbers) by name."""
    density, rgb = network(*map(jt.array, (points, views, *selected)))
    loss = density.sqr().sum() + (rgb * jt.array(np.resize(cotangents, (len(points), 3)))).sum()
    parameters = named_parameters(network)
    return {name: g.numpy() for name, g in zip(parameters, jt.grad(loss, list(parameters.values())), strict=True)}


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("name", CONFS)
def test_density_and_colour_agree_with_the_oracle(name):
    network, conf = network_of(name)
    points, views = inputs_of(conf)
    density, rgb = network(jt.array(points), jt.array(views))
    expected = oracles.nerf_network(params64(network), conf, points.astype(np.float64), views.astype(np.float64))
    np.testing.assert_allclose(density.numpy(), expected[0], atol=ATOL[name])
    np.testing.assert_allclose(rgb.numpy(), expected[1], atol=ATOL[name])


@pytest.mark.parametrize(("name", "form"), [*itertools.product(CONFS, OWN_FORMS), ("one skip", REFERENCE)])
def test_every_parameter_receives_the_gradient_of_finite_differences(name, form):
    network, conf = network_of(name)
    points, views = inputs_of(conf)
    exact, params = [v.astype(np.float64) for v in (points, views)], params64(network)
    with in_form(form):
        found = weight_gradients(network, points, views)
    for parameter, actual in found.items():
        assert np.abs(actual).max() > 0.0, f"{parameter} receives no gradient"
        entries = some_entries(actual, 5)

        def loss(value, parameter=parameter):
            density, rgb = oracles.nerf_network(params | {parameter: value}, conf, *exact)
            return float((density**2).sum() + (rgb * COTANGENTS).sum())

        expected = central_differences(loss, params[parameter], entries)
        scale = float(np.abs(actual).max())
        assert_grad_close(actual.ravel()[entries], expected, rtol=1e-4, atol=1e-4 * scale, name=parameter)


@pytest.mark.parametrize("count", [70, 3000])
@pytest.mark.parametrize("share", [(), (0.6,)], ids=["all points", "some points"])
def test_gradients_are_the_same_bits_with_any_number_of_threads(count, share, openmp_threads):
    network, conf = network_of("two skips, odd width")
    selected, found = [np.random.default_rng(3).random(count) < part for part in share], []
    for threads in (1, 2, 2, 3):
        openmp_threads(threads)
        found.append(weight_gradients(network, *inputs_of(conf, count), *selected))
        np.testing.assert_equal(found[-1], found[0])


SELECTED = {
    "some of several passes": np.random.default_rng(3).random(300) < 0.6,
    "none": np.zeros(COUNT, bool),
    "the only one": np.ones(1, bool),
}


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("which", SELECTED)
def test_what_is_selected_does_not_depend_on_what_the_others_are(which):
    network, conf = network_of("two skips, odd width")
    selected = SELECTED[which]
    points, views = inputs_of(conf, len(selected))
    exact = oracles.nerf_network(params64(network), conf, *(v.astype(np.float64) for v in (points, views)))
    chosen, cotangents = np.flatnonzero(selected), np.resize(COTANGENTS, (len(selected), 3))
    expected = {name: np.zeros(value.shape) for name, value in params64(network).items()}
    if len(chosen):  # all of these, through plain Jittor
        with use(REFERENCE):
            expected = weight_gradients(network, points[chosen], views[chosen], cotangents=cotangents[chosen])
    points[~selected], views[~selected] = np.nan, np.nan
    for value, right in zip(network(*map(jt.array, (points, views, selected))), exact, strict=True):
        np.testing.assert_allclose(value.numpy(), np.where(selected[:, None], right, 0.0), atol=1e-5)
    for name, actual in weight_gradients(network, points, views, selected, cotangents=cotangents).items():
        atol = 1e-5 * np.abs(expected[name]).max()
        np.testing.assert_allclose(actual, expected[name], atol=atol, err_msg=name)
