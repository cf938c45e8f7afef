"""The multiresolution grid, alone and with a network behind it: both forms against a float64 statement of the paper."""

import dataclasses

import method_oracles as grid_oracle
import numpy as np
import pytest
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences, some_entries

from models.machine.backend import jt
from models.ops.grid import grid_encode
from models.ops.grid_sdf import active_weights, grid_sdf, grid_values, with_network
from models.ops.sizes import FEATURES, grid_sizes
from models.ops.source import REFERENCE, use

ATOL = 2e-5
ATOL_FINE = 1e-4  # where cells are 0.01 wide, one rounding of a point's place is 1e-5 of a cell
EIKONAL_EPS = 1e-9  # keeps the length of a gradient differentiable at zero


@dataclasses.dataclass(frozen=True)
class Case:
    """A grid with a network, points, and the cotangents of what it gives."""

    sizes: object
    points: np.ndarray
    table: np.ndarray
    layers: list
    cotangents: list

    @property
    def weights(self):
        return active_weights([tuple(map(jt.array, layer)) for layer in self.layers], self.sizes)

    @property
    def in_64(self):
        layers = [tuple(value.astype(np.float64) for value in layer) for layer in self.layers]
        return self.points.astype(np.float64), self.table.astype(np.float64), layers


def make(count, levels=3, finest=16, log2_rows=7, active=None, hidden=(64,), outputs=5, seed=0, points=None, smooth=0):
    """Most levels share rows by the hash, many times over; some points lie beyond the cube."""
    rng = np.random.default_rng(seed)
    grid = dataclasses.replace(grid_sizes(levels, 4, finest, log2_rows, active), smooth=smooth)
    sizes = with_network(grid, hidden, outputs)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    ends = [3 + FEATURES * levels, *hidden, outputs]
    layers = [(normal(b, a) * 0.3, normal(b) * 0.1) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    if points is None:
        points = rng.uniform(-1.2, 1.2, (count, 3)).astype(np.float32)
    cotangents = [normal(count, width) for width in (1, outputs - 1, 3)]
    return Case(sizes, points, normal(sizes.rows, FEATURES) * 0.2, layers, cotangents)


def run(case):
    """Distance, feature, gradient, and the gradients of table and layers of a loss with an eikonal term."""
    table, layers = jt.array(case.table), [tuple(map(jt.array, layer)) for layer in case.layers]
    output = grid_sdf(jt.array(case.points), table, active_weights(layers, case.sizes), case.sizes)
    found = (output.sdf, output.feature, output.gradient)
    length = (output.gradient.sqr().sum(dim=1) + EIKONAL_EPS).sqrt()
    loss = sum((a * jt.array(b)).sum() for a, b in zip(found, case.cotangents, strict=True)) + (length - 1).sqr().sum()
    gradients = jt.grad(loss, [table, *(value for layer in layers for value in layer)])
    return [value.numpy() for value in (*found, *gradients)]


def loss64(case, table, layers):
    values, gradient = grid_oracle.field(case.points.astype(np.float64), table, layers, case.sizes)
    found = (values[:, :1], values[:, 1:], gradient)
    length = np.sqrt((gradient**2).sum(axis=1) + EIKONAL_EPS)
    return sum((a * b).sum() for a, b in zip(found, case.cotangents, strict=True)) + ((length - 1) ** 2).sum()


def assert_output_is_the_oracles(case, atol=ATOL):
    found, (values, gradient) = run(case), grid_oracle.field(*case.in_64, case.sizes)
    for actual, expected in zip(found[:3], (values[:, :1], values[:, 1:], gradient), strict=True):
        np.testing.assert_allclose(actual, expected, atol=atol * max(1.0, np.abs(expected).max()))
    return found


ALL = pytest.mark.parametrize("form", FORMS)
SECOND_ORDER = {
    "one hidden layer": {},
    "two hidden layers, the first odd": {"hidden": (17, 32), "outputs": 4},
    "a level that is not active": {"active": 2},
    "a smooth level": {"smooth": 1},
}


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("name", SECOND_ORDER)
def test_outputs_and_gradients_agree_with_the_oracle(form, name):
    case = make(70, **SECOND_ORDER[name])
    with in_form(form):
        found = assert_output_is_the_oracles(case)
    _, table, layers = case.in_64
    values = [table, *(value for layer in layers for value in layer)]
    for index, (value, actual) in enumerate(zip(values, found[3:], strict=True)):
        entries = some_entries(value, 12, seed=index)
        if index == 0:  # most rows of the table are not used
            entries = np.sort(np.argsort(-np.abs(actual.reshape(-1)))[:12])

        def moved(x, index=index):
            replaced = [x if i == index else kept for i, kept in enumerate(values)]
            return loss64(case, replaced[0], list(zip(replaced[1::2], replaced[2::2], strict=True)))

        expected = central_differences(moved, value, entries)
        assert_grad_close(actual.reshape(-1)[entries], expected, name=f"value {index}")


@pytest.mark.slow
@pytest.mark.parametrize("levels", range(1, 13))
def test_any_number_of_levels(levels):
    assert_output_is_the_oracles(make(33, levels=levels, finest=200 if levels > 1 else 4, log2_rows=10), ATOL_FINE)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 64, 65, 129])
def test_any_number_of_points_and_native_gradients_are_the_references(count):
    found = assert_output_is_the_oracles(make(count, seed=4))
    with use(REFERENCE):
        expected = run(make(count, seed=4))
    for actual, value in zip(found, expected, strict=True):
        assert_grad_close(actual, value, rtol=1e-4)


BORDERS = [[-1, -1, -1], [1, 1, 1], [0, 0, 0], [0.5, -0.25, 1], [1, -1, 0.125], [0.75, 0.75, -0.5]]


@pytest.mark.slow
@ALL
def test_on_borders_the_upper_cell_counts_and_beyond_the_cube_the_nearest(form):
    points = np.float32([[1.5, 0.3, -0.2], [0.1, -7.0, 0.4], [3.0, 3.0, 3.0]])
    case = make(3, points=points)
    with in_form(form):
        assert_output_is_the_oracles(make(len(BORDERS), levels=2, finest=8, points=np.float32(BORDERS)))
        assert_output_is_the_oracles(case)
        places = map(jt.array, (points, points.clip(-1, 1)))
        outside, on_it = (grid_encode(x, jt.array(case.table), case.sizes).numpy() for x in places)
    np.testing.assert_array_equal(outside, on_it)


@pytest.mark.slow
def test_levels_that_are_not_active_have_no_gradient_and_are_never_read():
    case = make(50, active=1)
    first = case.sizes.entries[0]
    case.table[first:] = np.nan
    found = run(case)
    assert all(np.isfinite(value).all() for value in found)
    d_table, d_matrix = found[3:5]
    assert not d_table[first:].any() and not d_matrix[:, case.sizes.inputs :].any()
    features = grid_encode(jt.array(case.points), jt.array(case.table), case.sizes).numpy()
    assert features.shape == (50, 6) and (features[:, 2:] == 0).all() and (features[:, :2] != 0).all()


@pytest.mark.slow
def test_all_gradients_are_the_same_bits_for_any_number_of_threads(openmp_threads):
    case = make(1500, levels=6, finest=64, log2_rows=9)
    openmp_threads(1)
    expected = run(case)
    for threads in (2, 3, 7):
        openmp_threads(threads)
        assert all(np.array_equal(a, b) for a, b in zip(run(case), expected, strict=True))


@ALL
def test_the_outputs_alone_are_the_fields_with_their_gradients(form):
    case = make(70, seed=2)
    cotangent = np.random.default_rng(0).normal(size=(70, 5)).astype(np.float32)
    table, weights = jt.array(case.table), case.weights
    with in_form(form):
        values = grid_values(jt.array(case.points), table, weights, case.sizes)
        field = grid_sdf(jt.array(case.points), table, weights, case.sizes)
        both = jt.concat([field.sdf, field.feature], dim=1)
        found, expected = (jt.grad((v * jt.array(cotangent)).sum(), [table, weights.packed]) for v in (values, both))
        assert np.abs(values.numpy() - both.numpy()).max() < 1e-6
        for actual, value in zip(found, expected, strict=True):
            assert_grad_close(actual.numpy(), value.numpy(), rtol=1e-5)


@pytest.mark.slow
@ALL
def test_the_grid_alone_takes_cotangents_to_points_and_table(form):
    case = make(40, seed=3)
    points, table, _ = case.in_64
    cotangent = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    x, rows = jt.array(case.points), jt.array(case.table)
    with in_form(form):
        features = grid_encode(x, rows, case.sizes)
        found = jt.grad((features * jt.array(cotangent)).sum(), [x, rows])
        expected, slopes = grid_oracle.encode(points, table, case.sizes)
        np.testing.assert_allclose(features.numpy(), expected, atol=1e-6)
        assert_grad_close(found[0].numpy(), np.einsum("pf,pfa->pa", cotangent, slopes))
    differences = central_differences(
        lambda moved: (grid_oracle.encode(points, moved, case.sizes)[0] * cotangent).sum(), table
    )
    assert_grad_close(found[1].numpy().reshape(-1), differences)


def test_resolutions_grow_by_one_factor_and_small_levels_are_dense():
    sizes = grid_sizes(12, 16, 512, 17)
    assert sizes.resolutions == tuple(round(16 * 32 ** (level / 11)) for level in range(12))
    assert [sizes.is_dense(level) for level in range(12)] == [True] * 4 + [False] * 8
    assert sizes.rows == sum(sizes.entries) == sizes.start(11) + 2**17
    assert sizes.inputs == 27
