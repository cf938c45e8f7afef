"""Fields against their float64 statements: values, gradients along space and by weights; layers and states."""

import dataclasses

import numpy as np
import oracles
import pytest
from dense_renderer import COLOR, NERF, SDF, distance_of, params64, roughen
from forms import FORMS, OWN_FORMS, in_form
from gradcheck import assert_grad_close, central_differences, some_entries

from models.fields.color import RenderingNetwork
from models.fields.conf import VarianceConfig
from models.fields.layers import Linear
from models.fields.radiance import NeRF
from models.fields.sdf import SDFNetwork, SingleVarianceNetwork
from models.fields.state import export_state, import_state, named_parameters
from models.machine.available import FLOAT_BYTES
from models.machine.backend import jt
from models.ops.color_mlp import KEPT_BYTES
from models.ops.sizes import BLOCK, row_stride
from models.ops.source import REFERENCE

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


RELEASED = dataclasses.replace(SDF, d_hidden=256, n_layers=8, skip_in=(4,), multires=6, d_out=257)
SPHERE = np.random.default_rng(0).normal(size=(600, 3))
SPHERE /= np.linalg.norm(SPHERE, axis=1, keepdims=True)
AROUND = (SPHERE * np.random.default_rng(1).uniform(0.3, 1.1, (600, 1))).astype(np.float32)


# layers


def test_the_matrix_of_a_weight_normalised_layer_agrees_with_the_oracle():
    weight = np.random.default_rng(0).normal(size=(4, 7))
    layer = roughen(Linear(weight, np.zeros(4), weight_norm=True), 1, 0.5)
    named = {f"l.{name}": value for name, value in params64(layer).items()}
    np.testing.assert_allclose(layer.matrix().numpy(), oracles.layer_matrix(named, "l"), atol=1e-6)


# geometric initialisation


def test_the_released_sdf_network_starts_near_the_distance_to_a_sphere():
    error = distance_of(SDFNetwork(RELEASED, np.random.default_rng(0)), AROUND).numpy()[:, 0] - (
        np.linalg.norm(AROUND, axis=1) - RELEASED.bias
    )
    # The published initialisation gives means of 0.07 to 0.24 and largest errors of 0.26 to 0.60 over 8 seeds, and this
    # one 0.08 to 0.24 and 0.28 to 0.61; seed 0: 0.09 and 0.35.
    assert np.abs(error).mean() < 0.12 and np.abs(error).max() < 0.4


@pytest.mark.parametrize(("is_inverted", "sign"), [(False, 1), (True, -1)])
def test_the_sphere_may_have_another_radius(is_inverted, sign):
    field = SDFNetwork(dataclasses.replace(RELEASED, scale=2.0), np.random.default_rng(0))
    field.begin_with_sphere(0.8, is_inverted)
    error = distance_of(field, AROUND).numpy()[:, 0] - sign * (np.linalg.norm(AROUND, axis=1) - 0.8)
    assert np.abs(error).mean() < 0.12 and np.abs(error).max() < 0.4


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    first, again, other = (export_state(SDFNetwork(SDF, np.random.default_rng(seed))) for seed in (7, 7, 8))
    assert list(first) == [f"lin{i}.{leaf}" for i in range(3) for leaf in ("bias", "weight_g", "weight_v")]
    np.testing.assert_equal(again, first)
    assert any((value != other[name]).any() for name, value in first.items())


# round trip


def test_import_restores_what_export_gave_bit_for_bit():
    source, target = (NeRF(NERF, np.random.default_rng(seed)) for seed in (1, 2))
    state = export_state(source)
    import_state(target, state)
    restored = export_state(target)
    assert list(restored) == list(state)
    np.testing.assert_equal(restored, state)
    assert all(value.requires_grad for value in named_parameters(target).values())


def test_a_state_that_does_not_fit_is_named_and_changes_nothing():
    network = RenderingNetwork(COLOR, np.random.default_rng(0))
    before = export_state(network)
    good = {name: value + 1.0 for name, value in before.items()}
    for state, message in (
        ({name: value for name, value in good.items() if name != "lin1.weight_g"}, "lin1.weight_g is missing"),
        (good | {"lin9.bias": np.zeros(3)}, "lin9.bias does not belong to this network"),
        (good | {"lin1.weight_v": good["lin1.weight_v"].T}, r"lin1.weight_v has shape \[12, 3\], expected \[3, 12\]"),
    ):
        with pytest.raises(ValueError, match=message):
            import_state(network, state)
        np.testing.assert_equal(export_state(network), before)
