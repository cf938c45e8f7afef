"""Floating-point operations of a training step, counted from layer widths: the matrix products that cannot be avoided.

A multiply-add is 2 operations; element-wise work (below one per cent) is left out, and so is what an implementation
computes again to save memory. Per point, with M the multiply-adds of all layers, of the first and of the last one:

* SDF network, 6 M - first - 3 last: its value (M); the sweep back to the point for the input gradient, which starts
  from the one row of the last layer that makes the distance (M - last); the cotangents of that sweep, through the
  layers and into the weights (2 (M - last)); the cotangents of the value, into the weights (M) and through the layers,
  but not to the point (M - first).
* Up-sampling query: the distance alone (M - last + the last layer's inputs).
* Colour network, 3 M less the first layer's part for points and directions, to which no cotangent goes.
* Background network, likewise, at the intervals behind the region. Those of the region that are outside the unit sphere
  are left out: their number depends on the rays.
"""

from __future__ import annotations

from models.fields.conf import ColorConfig, NerfConfig, SdfConfig
from models.methods.confs import NeuSConfig

OPERATIONS_PER_MULTIPLY_ADD = 2
POINT_WIDTH = 3
NORMAL_WIDTH = 3


def step_flops(model: NeuSConfig, rays: int) -> int:
    """The count for a step on `rays` rays."""
    renderer = model.neus_renderer
    samples, importance = renderer.n_samples, renderer.n_importance
    # Up-sampling evaluates all depths except those of the last round.
    queried = samples + importance - -(-importance // renderer.up_sample_steps) if importance else 0
    per_ray = queried * sdf_query(model.sdf_network) + renderer.n_outside * nerf_training(model.nerf)
    per_ray += (samples + importance) * (sdf_training(model.sdf_network) + color_training(model.rendering_network))
    return OPERATIONS_PER_MULTIPLY_ADD * rays * per_ray


def matmul_flops(rows: int, inner: int, columns: int) -> int:
    """Operations of the product [rows, inner] x [inner, columns]."""
    return OPERATIONS_PER_MULTIPLY_ADD * rows * inner * columns


def sdf_query(conf: SdfConfig) -> int:
    """Multiply-adds of one signed distance."""
    widths = _sdf_widths(conf)
    return _multiply_adds(widths[:-1]) + widths[-1][0]


def sdf_training(conf: SdfConfig) -> int:
    """Multiply-adds of value, feature and gradient at one point and of their cotangents."""
    widths = _sdf_widths(conf)
    return 6 * _multiply_adds(widths) - _multiply_adds(widths[:1]) - 3 * _multiply_adds(widths[-1:])


def color_training(conf: ColorConfig) -> int:
    """Multiply-adds of one colour and its cotangents."""
    encoded_views = 0 if conf.mode == "no_view_dir" else 2 * POINT_WIDTH * conf.multires_view
    first = conf.d_in + encoded_views + conf.d_feature
    sizes = [first] + [conf.d_hidden] * conf.n_layers + [conf.d_out]
    normals = 0 if conf.mode == "no_normal" else NORMAL_WIDTH
    fixed = first - conf.d_feature - normals
    return 3 * _multiply_adds(list(zip(sizes[:-1], sizes[1:], strict=True))) - fixed * sizes[1]


def nerf_training(conf: NerfConfig) -> int:
    """Multiply-adds of density and colour at one point of the background and of their cotangents."""
    point, view = conf.d_in * (1 + 2 * conf.multires), conf.d_in_view * (1 + 2 * conf.multires_view)
    half = conf.W // 2
    skips = sum(1 for layer in range(conf.D - 1) if layer in conf.skips)
    trunk = point * conf.W * (1 + skips) + conf.W * conf.W * (conf.D - 1)
    heads = conf.W * (1 + conf.W) + (conf.W + view) * half + half * 3
    return 3 * (trunk + heads) - point * conf.W * (1 + skips) - view * half


def _sdf_widths(conf: SdfConfig) -> list[tuple[int, int]]:
    """(inputs, outputs) of each layer; the one before a skip leaves room for the encoded point."""
    sizes = [conf.embedded_width] + [conf.d_hidden] * conf.n_layers + [conf.d_out]
    return [
        (sizes[layer], sizes[layer + 1] - (conf.embedded_width if layer + 1 in conf.skip_in else 0))
        for layer in range(len(sizes) - 1)
    ]


def _multiply_adds(widths: list[tuple[int, int]]) -> int:
    return sum(inputs * outputs for inputs, outputs in widths)
