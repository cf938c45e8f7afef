"""What the CUDA forms of the networks start on a GPU, counted in emulation without running it."""

from dataclasses import replace

import pytest
from forms import work

from models.ops import color_mlp, grid_sdf, nerf_mlp, sdf_mlp, upsample
from models.ops.sizes import ColorSizes, NerfSizes, SdfSizes, grid_sizes
from models.ops.upsample import Placing, UpsampleRound

WIDE = (256, 256)
# The published networks: a skip into layer 4, so that layer 3 has 256 - 39 outputs.
SDF = SdfSizes(9, 39, 6, 1 << 4, (39, 256, *WIDE * 2, 256, 217, *WIDE * 4, 256, 257), 1.0, 1)
COLOR = ColorSizes(5, 1, 30, 1, 256, (289, 256, *WIDE * 3, 256, 3))
NERF = NerfSizes(8, 4, 10, 4, (4,), (84, 256, *WIDE * 4, 340, 256, *WIDE * 2, 256, 257, 283, 128, 128, 3))
GRID = replace(grid_sizes(14, 16, 2048, 19), widths=(31, 64, 64, 64, 64, 17), keeps=1)
PLACING = Placing(replace(SDF, keeps=0), UpsampleRound(64, 0, 64.0), (16, 16, 16, 16), 0)
RAYS, POINTS = 512, 512 * (64 + 64)
STEP = (
    (sdf_mlp.SOURCE, "sdf_forward", SDF, POINTS),
    (sdf_mlp.SOURCE, "sdf_distance", SDF, POINTS),
    (sdf_mlp.SOURCE, "sdf_backward", SDF, POINTS),
    (upsample.PLACING_SOURCE, "place", PLACING, RAYS),
    (color_mlp.SOURCE, "color_forward", COLOR, POINTS),
    (color_mlp.SOURCE, "color_backward", COLOR, POINTS),
)
NERFS = ((nerf_mlp.SOURCE, "nerf_forward", NERF, POINTS), (nerf_mlp.SOURCE, "nerf_backward", NERF, POINTS))
SDFS = STEP[:4]
GRIDS = ((grid_sdf.SOURCE, "grid_forward", GRID, POINTS), (grid_sdf.SOURCE, "grid_backward", GRID, POINTS))
TOO_WIDE = {256: 600, 257: 601, 217: 561}
MOST_LAUNCHES = 150
MOST_SCRATCH = 170 << 20  # bytes, about a fifth of the pool of a step


def widened(layout):
    """The same with layers that are too wide for tiles."""
    if isinstance(layout, Placing):
        return replace(layout, network=widened(layout.network))
    return replace(layout, widths=tuple(TOO_WIDE.get(width, width) for width in layout.widths))


@pytest.mark.parametrize("called", STEP + NERFS, ids=lambda called: called[1])
def test_a_network_in_tiles_needs_no_products_and_a_few_launches(called):
    """A product for each layer and pass takes the place of the tiles where a field is too wide for them."""
    source, function, layout, rows = called
    done = work(source, function, layout, rows)
    assert done.products == [] and done.launches <= 60
    if called in SDFS:
        assert len(work(source, function, widened(layout), rows).products) > 9
    else:  # plain Jittor
        assert layout.fits_tiles and not widened(layout).fits_tiles


@pytest.mark.parametrize("called", SDFS + GRIDS, ids=lambda called: called[1])
def test_all_products_have_aligned_operands(called):
    """cuBLAS has its fastest kernels, above all those of TF32, only for them."""
    source, function, layout, rows = called
    products = work(source, function, layout if called in GRIDS else widened(layout), rows).products
    assert len(products) >= 5 and all(product.is_aligned for product in products)


def test_the_networks_of_a_step_need_few_launches_and_little_scratch():
    done = [work(*called) for called in STEP]
    assert sum(one.launches for one in done) <= MOST_LAUNCHES
    assert max(one.scratch for one in done) <= MOST_SCRATCH
