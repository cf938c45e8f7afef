"""Fields against their float64 statements: values, gradients along space, gradients with respect to weights."""

import dataclasses

import numpy as np
import oracles
import pytest
from dense_renderer import COLOR, SDF, distance_of, params64, roughen
from forms import FORMS, OWN_FORMS, in_form
from gradcheck import assert_grad_close, central_differences, some_entries

from models.fields.color import RenderingNetwork
from models.fields.conf import VarianceConfig
from models.fields.sdf import SDFNetwork
from models.fields.sharpness import SingleVarianceNetwork
from models.fields.state import named_parameters
from models.machine.backend import jt
from models.ops.color_mlp import FLOAT_BYTES, KEPT_BYTES
from models.ops.kernel import REFERENCE
from models.ops.sizes import BLOCK, row_stride

COUNT = 70  # more than one block of the native operations, the last one not full
RNG = np.random.default_rng(0)
POINTS = RNG.uniform(-0.9, 0.9, (COUNT, 3)).astype(np.float32)
VIEWS = (lambda v: v / np.linalg.norm(v, axis=1, keepdims=True))(RNG.normal(size=(COUNT, 3))).astype(np.float32)
NORMALS = RNG.normal(size=(COUNT, 3)).astype(np.float32)
FEATURES = RNG.normal(size=(COUNT, SDF.d_out - 1)).astype(np.float32)

# Each differs in one respect, or several that meet, from a plain network.
SDF_CONFS = {
    "no encoding, no skip": {"multires": 0, "skip_in": ()},
    "released encoding": {"multires": 6, "d_hidden": 48},
    "two skips": {"n_layers": 4, "skip_in": (1, 3)},
    "skip at the last layer": {"skip_in": (2,)},
    "one hidden layer": {"n_layers": 1, "skip_in": ()},
    "scale 3": {"scale": 3.0},
    "no weight norm": {"weight_norm": False},
    "inside outside": {"inside_outside": True},
    "uniform initialisation": {"geometric_init": False},
}
SECOND_ORDER_CONFS = ("no encoding, no skip", "released encoding", "two skips", "skip at the last layer", "scale 3")
SECOND_ORDER_CONFS += ("no weight norm",)
FIELD_ATOL = 1e-5  # measured: at most 3e-6, for the released encoding


@pytest.fixture(params=FORMS)
def path(request):
    """All ways through a network."""
    with in_form(request.param):
        yield


all_paths = pytest.mark.usefixtures("path")


def sdf_conf(name):
    return dataclasses.replace(SDF, **SDF_CONFS[name])


def sdf_network(name):
    return roughen(SDFNetwork(sdf_conf(name), np.random.default_rng(1)), 2, 0.05)


def assert_weight_slope(energy, params, name, actual, atol=1e-5):
    """A gradient by a parameter is a difference quotient of the energy of parameters, at some entries."""
    entries = some_entries(actual, 3, seed=len(name))
    expected = central_differences(lambda value: energy(params | {name: value}), params[name], entries)
    assert_grad_close(actual.ravel()[entries], expected, rtol=1e-4, atol=atol, name=name)


# the signed distance


@all_paths
@pytest.mark.parametrize("name", SDF_CONFS)
def test_sdf_feature_and_gradient_agree_with_the_oracle(name):
    network, points = sdf_network(name), POINTS.astype(np.float64)
    params, conf = params64(network), sdf_conf(name)
    sdf, feature = oracles.sdf_network(params, conf, points)
    output = network(jt.array(POINTS))
    np.testing.assert_allclose(output.sdf.numpy(), sdf, atol=FIELD_ATOL)
    np.testing.assert_allclose(output.feature.numpy(), feature, atol=FIELD_ATOL)
    np.testing.assert_allclose(output.gradient.numpy(), oracles.sdf_gradient(params, conf, points), atol=FIELD_ATOL)
    np.testing.assert_allclose(distance_of(network, POINTS).numpy(), sdf, atol=FIELD_ATOL)


def field_energy(params, conf):
    """A loss of value, feature and, to the second power of its length, gradient; of known weights per point."""
    sdf, feature = oracles.sdf_network(params, conf, POINTS.astype(np.float64))
    gradient = oracles.sdf_gradient(params, conf, POINTS.astype(np.float64))
    eikonal = ((np.linalg.norm(gradient, axis=1) - 1.0) ** 2).sum()
    return float(eikonal + (sdf * NORMALS[:, :1]).sum() + 0.1 * (feature**2).sum())


def weight_gradients(network):
    """The same loss through the network, differentiated with respect to every parameter."""
    output = network(jt.array(POINTS))
    eikonal = (output.gradient.sqr().sum(dim=1).sqrt() - 1.0).sqr().sum()
    loss = eikonal + (output.sdf * jt.array(NORMALS[:, :1])).sum() + 0.1 * output.feature.sqr().sum()
    parameters = named_parameters(network)
    gradients = jt.grad(loss, list(parameters.values()))
    return {name: value.numpy() for name, value in zip(parameters, gradients, strict=True)}


@pytest.mark.parametrize(
    ("name", "form"),  # plain Jittor compiles dozens of kernels for each conf: two will do
    [(name, form) for form in OWN_FORMS for name in SECOND_ORDER_CONFS]
    + [("two skips", REFERENCE), ("scale 3", REFERENCE)],
)
def test_weight_gradients_of_an_eikonal_loss_are_finite_differences(name, form):
    network, conf = sdf_network(name), sdf_conf(name)
    params = params64(network)
    with in_form(form):
        gradients = weight_gradients(network)
    for parameter, actual in gradients.items():
        scale = float(np.abs(actual).max())
        assert scale > 0.0, f"{parameter} receives no gradient"
        assert_weight_slope(lambda weights: field_energy(weights, conf), params, parameter, actual, 1e-4 * scale)


@all_paths
@pytest.mark.parametrize("count", [1, 64, 65, 129])
def test_a_point_s_values_do_not_depend_on_how_many_others_there_are(count):
    network, points = sdf_network("two skips"), np.resize(POINTS, (400, 3))
    part, whole = (network(jt.array(points[:rows])) for rows in (count, 400))
    for name in ("sdf", "feature", "gradient"):
        actual, expected = (getattr(output, name).numpy() for output in (part, whole))
        np.testing.assert_allclose(actual, expected[:count], atol=1e-6, err_msg=name)
    np.testing.assert_allclose(distance_of(network, points[:count]).numpy(), part.sdf.numpy(), atol=1e-6)


def test_weight_gradients_are_the_same_bits_with_any_number_of_threads(openmp_threads):
    network = sdf_network("two skips")
    points = jt.array(np.random.default_rng(7).uniform(-1.0, 1.0, (3000, 3)).astype(np.float32))
    parameters = list(named_parameters(network).values())

    def gradients(threads):
        openmp_threads(threads)
        output = network(points)
        return [value.numpy() for value in jt.grad((output.gradient.sqr().sum() + output.sdf.sum()), parameters)]

    first = gradients(1)
    for threads in (1, 2, 2, 3):
        for actual, expected in zip(gradients(threads), first, strict=True):
            np.testing.assert_array_equal(actual, expected)


# colour

COLOR_CONFS = {
    "idr": {},
    "idr without view encoding": {"multires_view": 0},
    "no_view_dir": {"mode": "no_view_dir", "d_in": 6, "multires_view": 0},
    "no_normal": {"mode": "no_normal", "d_in": 6, "multires_view": 4},
    "not squeezed": {"squeeze_out": False},
    "no weight norm": {"weight_norm": False, "multires_view": 4},
}


@all_paths
@pytest.mark.parametrize("name", COLOR_CONFS)
def test_colour_agrees_with_the_oracle(name):
    conf = dataclasses.replace(COLOR, n_layers=2, **COLOR_CONFS[name])
    network = roughen(RenderingNetwork(conf, np.random.default_rng(1)), 2)
    inputs = (POINTS, NORMALS, VIEWS, FEATURES)
    actual = network(*map(jt.array, inputs)).numpy()
    expected = oracles.color_network(params64(network), conf, *(x.astype(np.float64) for x in inputs))
    np.testing.assert_allclose(actual, expected, atol=FIELD_ATOL)


@all_paths
def test_colour_gradients_of_inputs_and_weights_are_finite_differences():
    network = roughen(RenderingNetwork(COLOR, np.random.default_rng(1)), 2)
    params, arrays = params64(network), [x.astype(np.float64) for x in (POINTS, NORMALS, VIEWS, FEATURES)]
    values = [jt.array(x) for x in (POINTS, NORMALS, VIEWS, FEATURES)]
    parameters = named_parameters(network)
    loss = (network(*values) * jt.array(NORMALS)).sum()
    targets = [values[1], values[3], *parameters.values()]
    gradients = [value.numpy() for value in jt.grad(loss, targets)]

    def energy(inputs, weights):
        return float((oracles.color_network(weights, COLOR, *inputs) * NORMALS).sum())

    for position, actual in ((1, gradients[0]), (3, gradients[1])):
        entries = some_entries(actual, 6)

        def of_input(x, position=position):
            return energy([*arrays[:position], x, *arrays[position + 1 :]], params)

        expected = central_differences(of_input, arrays[position], entries)
        assert_grad_close(actual.ravel()[entries], expected, rtol=1e-4, name=f"input {position}")
    for parameter, actual in zip(parameters, gradients[2:], strict=True):
        assert_weight_slope(lambda weights: energy(arrays, weights), params, parameter, actual)


# sharpness


@pytest.mark.parametrize(("value", "factor"), [(-2.0, 0), (-1.3816, 0), (0.3, 10), (1.3815, 10), (1.3817, 0), (3.0, 0)])
def test_sharpness_is_the_oracles_clipped_at_both_ends(value, factor):
    network = SingleVarianceNetwork(VarianceConfig(init_val=value))
    actual = network()
    np.testing.assert_allclose(actual.numpy(), [oracles.sharpness({"variance": np.float32(value)})], rtol=1e-5)
    gradient = jt.grad(actual.sum(), network.variance).numpy()
    np.testing.assert_allclose(gradient, [factor * np.exp(10.0 * value)], rtol=1e-5)


def test_colour_gradients_are_the_same_bits_if_layers_are_computed_again():
    network = roughen(RenderingNetwork(COLOR, np.random.default_rng(1)), 2)
    per_point = sum(row_stride(inputs) for inputs, _ in COLOR.widths[1:]) * FLOAT_BYTES

    def cotangents(count):
        """Of normals and features in the first block, for the sum of the colours."""
        values = [jt.array(np.resize(x, (count, x.shape[1]))) for x in (POINTS, NORMALS, VIEWS, FEATURES)]
        return [value.numpy()[:BLOCK] for value in jt.grad(network(*values).sum(), [values[1], values[3]])]

    few, many = cotangents(COUNT), cotangents(KEPT_BYTES // per_point + COUNT)
    for kept, again in zip(few, many, strict=True):
        assert kept.any()
        np.testing.assert_array_equal(kept, again)
