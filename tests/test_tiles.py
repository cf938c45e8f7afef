"""Networks in tiles of points on tensor cores, in emulation: PTX's layouts, and accuracy."""

import ctypes
import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import oracles
import pytest
from dense_renderer import SDF, params64, roughen
from forms import EMULATED, build, in_form, library, only_on_the_cpu

from models.checkpoints.published import read_torch_checkpoint, to_checkpoint
from models.commands.doctor_operations import results
from models.commands.operation_examples import Example, Inputs, example, kernels
from models.fields.sdf import SDFNetwork
from models.fields.state import import_state, named_parameters
from models.machine.backend import jt
from models.ops import color_mlp, nerf_mlp
from models.ops.sdf_mlp import SOURCE
from models.ops.sizes import ColorSizes, NerfSizes
from models.ops.source import NATIVE, REFERENCE

pytestmark = only_on_the_cpu
KIB = 1 << 10
# Bytes of shared memory that a block may ask for, by capability.
CARDS = {"7.5": 64 * KIB, "8.0": 163 * KIB, "8.6": 99 * KIB, "9.0": 227 * KIB}
PRIMITIVES = """#include "cuda_emulation.h"
extern "C" void multiply(const float *a, const float *b, float *c) {  // [16, 16], [16, 8], [16, 8]
    static uint16_t shared_a[16][24], shared_b[16][8];
    auto *kernel = +[](const float *a, const float *b, float *c) {
        SHARED_OF_LAUNCH(shared);
        uint16_t *of_a = (uint16_t *)shared, *of_b = of_a + 16 * 24;
        const int lane = threadIdx.x, group = lane / 4, pair = 2 * (lane % 4);
        for (int i = lane; i < 256; i += 32) of_a[i / 16 * 24 + i % 16] = (uint16_t)neus::halves(a[i], 0.f);
        for (int i = lane; i < 128; i += 32) of_b[i] = (uint16_t)neus::halves(b[i], 0.f);
        __syncthreads();
        uint32_t left[4], right[4];
        neus::load_matrices<false>(left, of_a + lane % 16 * 24 + lane / 16 * 8);
        neus::load_matrices<true>(right, of_b + lane % 16 * 8);
        float sums[4] = {};
        neus::multiply_matrices(sums, left, right[0], right[1]);
        for (int i = 0; i < 4; i++) c[(group + 8 * (i / 2)) * 8 + pair + i % 2] = sums[i];
    };
    for (int order = 0; order < 3; order++) {
        emulation::order = order;
        neus::launch_sharing(kernel, dim3(1), 32, 2048, a, b, c + 128 * order);
    }
}
extern "C" void to_half(const float *x, uint16_t *y, long n) {
    for (long i = 0; i < n; i++) y[i] = (uint16_t)neus::halves(x[i], 0.f);
}
extern "C" void from_half(const uint16_t *x, float *y, long n) {
    for (long i = 0; i < n; i++) y[i] = neus::lower_half(x[i]);
}
// 1 if it is refused: more shared memory than there is, a barrier or a call of a warp that not all threads reach. A row
// of warps may reach its own barrier more often than another one.
extern "C" int refuses(int what, long bytes) {
    auto *barrier = +[](int) { if (threadIdx.x % 2) __syncthreads(); };
    auto *call = +[](int) { if (threadIdx.x % 2) neus::largest_of_warp(1.f); };
    auto *nothing = +[](int) {};
    auto *own = +[](int) { for (unsigned i = 0; i <= threadIdx.x / 32; i++) neus::wait_for(1 + threadIdx.x / 32, 32); };
    auto *common = +[](int) { for (unsigned i = 0; i <= threadIdx.x / 32; i++) neus::wait_for(1, 64); };
    try {
        neus::launch_sharing((decltype(nothing)[]){nothing, barrier, call, own, common}[what], dim3(1), 64, bytes, 0);
    } catch (const std::exception &) {
        return 1;
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def primitives():
    return build(PRIMITIVES)


@pytest.fixture
def card():
    """Sets the shared memory of the emulated card, and whether factors are rounded."""

    def set_card(size, is_reduced=False):
        for source in (SOURCE, color_mlp.SOURCE, nerf_mlp.SOURCE):
            library(source).emulated_card(ctypes.c_long(size), int(is_reduced))

    yield set_card
    set_card(CARDS["9.0"])


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def test_halves_are_those_of_numpy_to_the_last_bit(primitives):
    every = np.arange(1 << 16, dtype=np.uint16)
    values = np.empty(len(every), np.float32)
    primitives.from_half(pointer(every), pointer(values), ctypes.c_long(len(every)))
    np.testing.assert_array_equal(values, every.view(np.float16).astype(np.float32))
    finite = values[np.isfinite(values)].astype(np.float64)
    middle = ((np.sort(finite)[1:] + np.sort(finite)[:-1]) / 2).astype(np.float32)  # ties
    beside = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    x = np.concatenate([values[~np.isnan(values)], middle, *beside, np.float32([65519.9, 65520, -65520, 1e38, 1e-9])])
    found = np.empty(len(x), np.uint16)
    primitives.to_half(pointer(x), pointer(found), ctypes.c_long(len(x)))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16).view(np.uint16))


def test_fragments_multiply_matrices_by_the_layouts_of_ptx(primitives):
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float16).astype(np.float32) for shape in ((16, 16), (16, 8)))
    found = np.empty((3, 16, 8), np.float32)
    primitives.multiply(pointer(a), pointer(b), pointer(found))
    for one in found:
        np.testing.assert_allclose(one, a @ b, atol=4e-6)  # sums are cut off, not rounded


def test_what_a_block_cannot_do_is_refused(primitives):
    asked = [*itertools.product([0], CARDS.values()), (0, 228 * KIB), (1, KIB), (2, KIB), (3, KIB), (4, KIB)]
    assert [primitives.refuses(what, ctypes.c_long(size)) for what, size in asked] == [0, 0, 0, 0, 1, 1, 1, 0, 1]


def field_of(conf, points, seed=0):
    """Distance, feature, gradient of a roughened network, and those of the oracle."""
    network = SDFNetwork(conf, np.random.default_rng(seed))
    roughen(network, seed)
    params = params64(network)
    expected = (*oracles.sdf_network(params, conf, points.astype(np.float64)),)
    return network, (*expected, oracles.sdf_gradient(params, conf, points.astype(np.float64)))


WIDE = dataclasses.replace(SDF, d_hidden=256, d_out=257, n_layers=4, skip_in=(2,), multires=6)
POINTS = np.random.default_rng(0).uniform(-0.9, 0.9, (70, 3)).astype(np.float32)
CASES = [("7.5", 256, (2,)), ("9.0", 256, (1,)), ("8.0", 96, ()), ("8.6", 300, (2, 3))]


def slope64(network, conf, cotangents, name, direction):
    """The derivative of the cotangents times the outputs along a direction of a parameter, by central differences."""
    params, ends, step = params64(network), [], 1e-6
    for side in (step, -step):
        moved = {**params, name: params[name] + side * direction}
        points = POINTS.astype(np.float64)
        outputs = (*oracles.sdf_network(moved, conf, points), oracles.sdf_gradient(moved, conf, points))
        ends.append(sum((a * b).sum() for a, b in zip(cotangents, outputs, strict=True)))
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize(("capability", "width", "skips"), CASES)
def test_wide_networks_are_those_of_the_oracle_on_every_card(card, capability, width, skips):
    """Values, and the gradients of the weights along their own and a random direction."""
    conf, rng = dataclasses.replace(WIDE, d_hidden=width, n_layers=3, skip_in=skips), np.random.default_rng(1)
    network, expected = field_of(conf, POINTS)
    cotangents = [rng.normal(size=value.shape).astype(np.float32) for value in expected]
    parameters = dict(named_parameters(network))
    card(CARDS[capability])
    with in_form(EMULATED[2]) as called:
        found = network(jt.array(POINTS))
        values = (found.sdf, found.feature, found.gradient)
        terms = [(value * jt.array(by)).sum() for value, by in zip(values, cotangents, strict=True)]
        gradients = [value.numpy() for value in jt.grad(sum(terms[1:], terms[0]), list(parameters.values()))]
        values = [value.numpy() for value in values]
    assert called.count("sdf_forward") == called.count("sdf_backward") == 1
    for ours, theirs in zip(values, expected, strict=True):
        assert np.abs(ours - theirs).max() <= 5e-6 * max(np.abs(theirs).max(), 1.0)
    for name, gradient in zip(parameters, gradients, strict=True):
        random = rng.normal(size=gradient.shape)
        direction = gradient / np.linalg.norm(gradient) + random / np.linalg.norm(random)
        theirs = slope64(network, conf, cotangents, name, direction)
        assert abs((gradient * direction).sum() - theirs) <= 1e-5 * np.linalg.norm(gradient)


COLORS = (6 + 3 + 98, 200, 200, 300, 300, 3)
TRUNK = (20, 130, 130, 130, 150, 130, 150, 131, 139, 65, 65, 3)


@pytest.mark.parametrize(("capability", "widest"), [("7.5", 256), ("9.0", 512)])
@pytest.mark.parametrize("kernel", [color_mlp.color, nerf_mlp.nerf], ids=["color", "nerf"])
def test_wide_colours_and_their_gradients_are_those_of_the_references(card, capability, widest, kernel):
    """Several columns of warps; features that are no whole vectors, or a skip into the heads and some of the points."""
    made, count = Inputs(0), 70
    colors = tuple(min(width, widest) for width in COLORS)
    weights = made.weights(colors if kernel is color_mlp.color else TRUNK)
    trained = [part for layer in weights.layers for part in layer]
    if kernel is color_mlp.color:
        inputs = [made.normal(count, width) for width in (6, 3, 98)]
        given, trained = (*inputs, weights, ColorSizes(3, 1, 6, 1, 98, colors)), [*inputs[1:], *trained]
    else:
        selected = jt.array(made.rng.random(count) < 0.8)
        points = made.normal(count, 4, size=0.5), made.directions(count)
        given = (*points, weights, NerfSizes(3, 4, 2, 1, (1, 2), TRUNK), selected)
    card(CARDS[capability])
    given = Example(given, tuple(trained))
    with in_form(EMULATED[2]) as called:
        found = results(kernel, given, NATIVE)
    assert sum(not name.startswith("pack_") for name in called) == 2
    for ours, theirs in zip(found, results(kernel, given, REFERENCE), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("name", ["sdf_field", "color", "nerf"])
def test_gradients_do_not_depend_on_the_order_of_threads_to_the_last_bit(name):
    found = []
    for form in EMULATED:
        with in_form(form):
            found.append(results(kernels()[name], example(name), NATIVE))
    for values in zip(*found, strict=True):
        assert all(np.array_equal(value, values[0]) for value in values)


GOLDEN = Path(__file__).parent / "golden" / "official_wmask_000040"


@pytest.mark.parametrize(("is_reduced", "bound"), [(False, 5e-6), (True, 6e-3)])
def test_trained_weights_keep_their_distances_and_gradients(card, is_reduced, bound):
    """With one product they are rounded as by TF32."""
    probe = np.load(f"{GOLDEN}_probe.npz")
    conf = dataclasses.replace(WIDE, **json.loads(str(probe["meta_json"]))["sdf_network"])
    network = SDFNetwork(conf, np.random.default_rng(0))
    import_state(network, to_checkpoint(read_torch_checkpoint(f"{GOLDEN}.pth")).tensors["sdf_network_fine"])
    points = probe["points"][:64]
    params = params64(network)
    card(CARDS["8.6"], is_reduced)
    with in_form(EMULATED[0]):
        found = network(jt.array(points))
        sdf, gradient = found.sdf.numpy(), found.gradient.numpy()
    apart = [
        np.abs(sdf - probe["sdf"][:64]).max(),
        np.abs(gradient - oracles.sdf_gradient(params, conf, points.astype(np.float64))).max(),
    ]
    assert max(apart) <= bound
    assert (apart[0] > 2e-5) == is_reduced
