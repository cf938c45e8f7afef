"""The background network: both ways through it against the float64 statement, against each other, and in detail."""

import dataclasses

import numpy as np
import oracles
import pytest
from forms import FORMS, OWN_FORMS, in_form
from gradcheck import assert_grad_close, central_differences, some_entries
from tiny_networks import NERF, params64, roughen

from models.fields.conf import NerfConfig
from models.fields.nerf import NeRF
from models.fields.state import named_parameters
from models.machine.backend import jt
from models.ops.kernel import REFERENCE, use

COUNT = 70  # more than one block of the native operation, the last one not full
RNG = np.random.default_rng(0)
VIEWS = (lambda v: v / np.linalg.norm(v, axis=1, keepdims=True))(RNG.normal(size=(COUNT, 3))).astype(np.float32)
POINTS = np.hstack([VIEWS[::-1], RNG.uniform(0.05, 1.0, (COUNT, 1))]).astype(np.float32)
COTANGENTS = RNG.normal(size=(COUNT, 3)).astype(np.float32)
CONFS = {
    "one skip": {},
    "no skip": {"skips": ()},
    "two skips, odd width": {"skips": (0, 2), "D": 4, "W": 37, "multires": 4, "multires_view": 0},
    "a skip after every layer": {"skips": (0, 1, 2), "D": 4, "W": 33, "multires_view": 3},
    "three coordinates, one layer": {"d_in": 3, "multires": 0, "D": 1, "skips": ()},
    "the smallest": {"d_in": 3, "multires": 0, "multires_view": 0, "D": 1, "W": 2, "skips": ()},
    "the released encodings": {"multires": 10, "multires_view": 4, "W": 48},
}
# The sine of an angle of 2^9 is known to 2^9 roundings of the angle.
ATOL = dict.fromkeys(CONFS, 1e-5) | {"the released encodings": 2e-4}


@pytest.fixture(params=FORMS)
def path(request):
    """All ways through a network."""
    with in_form(request.param):
        yield


all_paths = pytest.mark.usefixtures("path")


def network_of(name):
    conf = dataclasses.replace(NERF, **CONFS[name])
    return roughen(NeRF(conf, np.random.default_rng(1)), 2), conf


def plainly(network):
    """The network through the reference of its operation."""

    def evaluate(*inputs):
        with use(REFERENCE):
            return network(*inputs)

    return evaluate


def inputs_of(conf, count=COUNT):
    return np.resize(POINTS, (count, 4))[:, : conf.d_in].copy(), np.resize(VIEWS, (count, 3))


def weight_gradients(network, evaluate, points, views, *selected, cotangents=COTANGENTS):
    """d (density^2 + colour . known numbers) by name."""
    density, rgb = evaluate(*map(jt.array, (points, views, *selected)))
    loss = density.sqr().sum() + (rgb * jt.array(np.resize(cotangents, (len(points), 3)))).sum()
    parameters = named_parameters(network)
    return {name: g.numpy() for name, g in zip(parameters, jt.grad(loss, list(parameters.values())), strict=True)}


@all_paths
@pytest.mark.parametrize("name", CONFS)
def test_density_and_colour_agree_with_the_oracle(name):
    network, conf = network_of(name)
    points, views = inputs_of(conf)
    density, rgb = network(jt.array(points), jt.array(views))
    expected = oracles.nerf_network(params64(network), conf, points.astype(np.float64), views.astype(np.float64))
    np.testing.assert_allclose(density.numpy(), expected[0], atol=ATOL[name])
    np.testing.assert_allclose(rgb.numpy(), expected[1], atol=ATOL[name])


def finite_differences_agree(name):
    network, conf = network_of(name)
    points, views = inputs_of(conf)
    params = params64(network)
    for parameter, actual in weight_gradients(network, network, points, views).items():
        assert np.abs(actual).max() > 0.0, f"{parameter} receives no gradient"
        entries = some_entries(actual, 5)

        def loss(value, parameter=parameter):
            density, rgb = oracles.nerf_network(
                params | {parameter: value}, conf, points.astype(np.float64), views.astype(np.float64)
            )
            return float((density**2).sum() + (rgb * COTANGENTS).sum())

        expected = central_differences(loss, params[parameter], entries)
        scale = float(np.abs(actual).max())
        assert_grad_close(actual.ravel()[entries], expected, rtol=1e-4, atol=1e-4 * scale, name=parameter)


@pytest.mark.parametrize("form", OWN_FORMS)
@pytest.mark.parametrize("name", CONFS)
def test_every_parameter_receives_the_gradient_of_finite_differences(name, form):
    with in_form(form):
        finite_differences_agree(name)


def test_plain_jittor_gives_every_parameter_the_gradient_of_finite_differences():
    with use(REFERENCE):
        finite_differences_agree("one skip")


@pytest.mark.parametrize("name", ["two skips, odd width", "the released encodings"])
def test_the_native_gradients_are_those_of_the_reference(name):
    network, conf = network_of(name)
    inputs = inputs_of(conf, 200)
    expected = weight_gradients(network, plainly(network), *inputs)
    for parameter, actual in weight_gradients(network, network, *inputs).items():
        atol = 1e-5 * np.abs(expected[parameter]).max()
        np.testing.assert_allclose(actual, expected[parameter], atol=atol, err_msg=parameter)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 128, 129, 400])
def test_a_point_s_values_do_not_depend_on_how_many_others_there_are(count):
    network, conf = network_of("two skips, odd width")
    points, views = inputs_of(conf, 400)
    part, whole = (network(jt.array(points[:rows]), jt.array(views[:rows])) for rows in (count, 400))
    for actual, expected in zip(part, whole, strict=True):
        np.testing.assert_array_equal(actual.numpy(), expected.numpy()[:count])


@pytest.mark.parametrize("count", [70, 3000])
def test_gradients_are_the_same_bit_for_bit_with_any_number_of_threads(count, openmp_threads):
    network, conf = network_of("two skips, odd width")
    inputs, found = inputs_of(conf, count), []
    for threads in (1, 2, 2, 3):
        openmp_threads(threads)
        found.append(weight_gradients(network, network, *inputs))
    for other in found[1:]:
        for name, value in other.items():
            np.testing.assert_array_equal(value, found[0][name], err_msg=name)


@all_paths
def test_points_at_infinity_and_at_the_sphere_are_finite():
    network, _ = network_of("the released encodings")
    points = np.float32([[0, 0, 1, 0], [1, 0, 0, 1], [1e-20, 0, 0, 1e-20]])
    for value in network(jt.array(points), jt.array(VIEWS[:3])):
        assert np.isfinite(value.numpy()).all()


def test_a_network_deeper_than_a_machine_word_is_read_right():
    conf = NerfConfig(D=40, W=4, d_in=3, multires=0, multires_view=0, skips=(0, 31, 32, 38), use_viewdirs=True)
    network = roughen(NeRF(conf, np.random.default_rng(1)), 2)
    points, views = map(jt.array, inputs_of(conf))
    for actual, expected in zip(network(points, views), plainly(network)(points, views), strict=True):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), atol=1e-5)


SELECTED = {
    "some of several passes": np.random.default_rng(3).random(300) < 0.6,
    "a few": np.random.default_rng(4).random(COUNT) < 0.1,
    "all": np.ones(COUNT, bool),
    "none": np.zeros(COUNT, bool),
    "the only one": np.ones(1, bool),
    "not the only one": np.zeros(1, bool),
}


@all_paths
@pytest.mark.parametrize("which", SELECTED)
def test_values_and_gradients_of_selected_points_do_not_depend_on_what_the_others_are(which):
    network, conf = network_of("two skips, odd width")
    selected = SELECTED[which]
    points, views = inputs_of(conf, len(selected))
    exact = oracles.nerf_network(params64(network), conf, *(v.astype(np.float64) for v in (points, views)))
    chosen, cotangents = np.flatnonzero(selected), np.resize(COTANGENTS, (len(selected), 3))
    expected = {name: np.zeros(value.shape) for name, value in params64(network).items()}
    if len(chosen):  # all of these, through plain Jittor
        inputs = points[chosen], views[chosen]
        expected = weight_gradients(network, plainly(network), *inputs, cotangents=cotangents[chosen])
    points[~selected], views[~selected] = np.nan, np.nan
    found = network(*map(jt.array, (points, views, selected)))
    for value, right in zip(found, exact, strict=True):
        np.testing.assert_allclose(value.numpy(), np.where(selected[:, None], right, 0.0), atol=1e-5)
    for name, actual in weight_gradients(network, network, points, views, selected, cotangents=cotangents).items():
        atol = 1e-5 * np.abs(expected[name]).max()
        np.testing.assert_allclose(actual, expected[name], atol=atol, err_msg=name)


@pytest.mark.parametrize("form", OWN_FORMS)
def test_a_selected_point_s_values_are_those_without_a_selection(form):
    network, conf = network_of("two skips, odd width")
    points, views = map(jt.array, inputs_of(conf))
    selected = SELECTED["a few"]
    with in_form(form):
        some, whole = network(points, views, jt.array(selected)), network(points, views)
        for actual, expected in zip(some, whole, strict=True):
            np.testing.assert_allclose(actual.numpy()[selected], expected.numpy()[selected], atol=1e-6)


def test_gradients_of_selected_points_are_the_same_bit_for_bit_with_any_number_of_threads(openmp_threads):
    network, conf = network_of("two skips, odd width")
    selected, found = np.random.default_rng(3).random(3000) < 0.6, []
    for threads in (1, 2, 3):
        openmp_threads(threads)
        found.append(weight_gradients(network, network, *inputs_of(conf, 3000), selected))
    for other in found[1:]:
        for name, value in other.items():
            np.testing.assert_array_equal(value, found[0][name], err_msg=name)
