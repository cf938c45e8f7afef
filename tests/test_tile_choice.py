"""Which networks are computed in tiles on which GPU, and how many points and slices at a time."""

import ctypes
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from dense_renderer import COLOR, NERF
from forms import EMULATED, build, in_form, only_on_the_cpu, work
from test_cuda_work import POINTS as MANY
from test_cuda_work import SDF as PUBLISHED
from test_tiles import CARDS, WIDE, pointer
from test_tiles import card as card

from models.commands.doctor_operations import results
from models.commands.operation_examples import example, kernels
from models.machine import backend
from models.ops import color_mlp, nerf_mlp
from models.ops.sdf_mlp import SOURCE
from models.ops.sizes import ColorSizes, NerfSizes, SdfSizes
from models.ops.source import CUDA, NATIVE, REFERENCE
from models.results.context import fits_tiles, tiles_line

pytestmark = only_on_the_cpu

ROOMY = {
    "sdf_network": dataclasses.replace(WIDE, d_hidden=200),
    "rendering_network": dataclasses.replace(COLOR, d_feature=200),
    "nerf": dataclasses.replace(NERF, W=200),
}
SIZES = {
    "the largest": ("sdf_network", {"d_hidden": 512, "d_out": 513, "n_layers": 15, "multires": 20}, True),
    "a wide layer": ("sdf_network", {"d_hidden": 513}, False),
    "a wide feature": ("sdf_network", {"d_out": 514}, False),
    "a wide encoding": ("sdf_network", {"multires": 21, "d_hidden": 300}, False),
    "many layers": ("sdf_network", {"n_layers": 16}, False),
    "the largest of colours": ("rendering_network", {"d_hidden": 512, "d_feature": 512, "n_layers": 15}, True),
    "a wide feature of colours": ("rendering_network", {"d_feature": 513}, False),
    "the largest NeRF": ("nerf", {"D": 12, "W": 512, "multires": 15}, True),
    "a NeRF of many layers": ("nerf", {"D": 13}, False),
    "a NeRF of a wide encoding": ("nerf", {"multires": 16}, False),
}


def is_in_tiles(name, conf):
    """Whether a network is: else fields are computed layer by layer, and others in plain Jittor."""
    layers = [*conf.trunk, *conf.heads] if name == "nerf" else conf.widths
    widths = tuple(width for pair in layers for width in pair)
    if name == "nerf":
        sizes = NerfSizes(conf.D, conf.d_in, conf.multires, conf.multires_view, conf.skips, widths)
        return sizes.fits_tiles and work(nerf_mlp.SOURCE, "nerf_backward", sizes, MANY).products == []
    if name == "rendering_network":
        sizes = ColorSizes(len(layers), 1, widths[0] - conf.d_feature - 3, 1, conf.d_feature, widths)
        return sizes.fits_tiles and work(color_mlp.SOURCE, "color_backward", sizes, MANY).products == []
    sizes = SdfSizes(len(layers), conf.embedded_width, conf.multires, 1 << 2, widths, 1.0)
    return work(SOURCE, "sdf_distance", sizes, MANY).products == []


@pytest.mark.parametrize(("network", "changes", "fits"), SIZES.values(), ids=SIZES)
def test_the_log_says_which_networks_have_no_tiles(network, changes, fits, monkeypatch):
    conf = dataclasses.replace(ROOMY[network], **changes)
    assert is_in_tiles(network, conf) == fits_tiles(conf) == fits
    whole = SimpleNamespace(model=SimpleNamespace(**{**ROOMY, network: conf}))
    for name, told in (("cuda", not fits), ("cpu", False)):
        monkeypatch.setattr(backend, "device_info", lambda name=name: SimpleNamespace(name=name))
        assert (network in tiles_line(whole)) == told


@pytest.mark.parametrize("name", ["color", "nerf"])
def test_a_turing_computes_wide_colours_in_plain_jittor(name, monkeypatch):
    """It has room for tiles of half the width."""
    sizes = ColorSizes(5, 1, 30, 1, 256, (289, *(512,) * 8, 3)), NerfSizes(2, 4, 10, 4, (), (84, *(512,) * 4, 513))
    for capability in (75, 80):
        gpu = SimpleNamespace(capability=capability)
        monkeypatch.setattr(backend.choice, "home", SimpleNamespace(plan=SimpleNamespace(gpu=gpu)))
        assert [one.fits_tiles for one in sizes] == [capability == 80] * 2
    given = example(name)
    monkeypatch.setattr(ColorSizes if name == "color" else NerfSizes, "fits_tiles", False)
    with in_form(EMULATED[0]) as called:
        found = results(kernels()[name], given, NATIVE)
    assert called == []
    for ours, theirs in zip(found, results(kernels()[name], given, REFERENCE), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


WAVES = """
// Shares of the multiprocessors' time in which they compute tiles, and gradients of weights in a launch of `blocks`.
extern "C" void filled(long bytes, int multiprocessors, long points, long blocks, double *shares) {
    emulation::card_shared = bytes;
    emulation::card_multiprocessors = multiprocessors;
    emulation::order = emulation::DRY;
    const std::vector<neus::LayerShape> shapes(3, {0, 0, 256, 256, 0, 256, 256, 48, 0, 256, 1.f});
    const neus::NetInTiles net(nullptr, shapes, true);
    const long most = net.at_once(points), at_once = multiprocessors * 16 / net.warps;
    const auto tiles = [&](long rows) { return (rows + net.points - 1) / net.points; };
    long waves = 0;
    for (long begin = 0; begin < points; begin += most)
        waves += (tiles(std::min(most, points - begin)) + at_once - 1) / at_once;
    shares[0] = (double)tiles(points) / (waves * at_once);
    const long chunks = most / neus::CHUNK, slices = neus::slices_of<>(blocks, chunks, multiprocessors);
    const long turns = (blocks * slices + multiprocessors - 1) / multiprocessors;
    shares[1] = (double)blocks * chunks / multiprocessors / (turns * ((chunks + slices - 1) / slices));
}
"""


# Blocks of the weight gradients: of the sweep, of the values, of colours and of the published NeRF.
@pytest.mark.parametrize("blocks", [34, 38, 20, 42])
@pytest.mark.parametrize(("capability", "multiprocessors"), [("8.6", 82), ("8.0", 108), ("9.0", 132), ("9.0", 148)])
def test_passes_and_slices_fill_the_multiprocessors(capability, multiprocessors, blocks):
    built, shares = build(f'#include "cuda_emulation.h"\n{SOURCE.text(CUDA)}{WAVES}'), np.empty(2)
    size = ctypes.c_long(CARDS[capability])
    built.filled(size, multiprocessors, ctypes.c_long(MANY), ctypes.c_long(blocks), pointer(shares))
    assert shares.min() >= 0.85


def test_a_card_without_room_for_a_tile_takes_products(card):
    wide = dataclasses.replace(
        PUBLISHED, widths=tuple({256: 512, 217: 473}.get(w, w) for w in PUBLISHED.widths), keeps=0
    )
    for name, has_tiles in (("7.5", False), ("8.6", True)):
        card(CARDS[name])
        assert (work(SOURCE, "sdf_distance", wide, MANY).products == []) == has_tiles
