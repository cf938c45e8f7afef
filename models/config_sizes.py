"""How large the networks of a conf are, and what a ray takes, from the numbers of the conf alone; no Jittor here."""

from __future__ import annotations

from models.config_blocks import NERF, ColorConfig, ModelConfig, NerfConfig, SdfConfig

VIEW_WIDTH = 3  # of a direction
FLOAT_BYTES = 4

Widths = list[tuple[int, int]]  # (inputs, outputs) of each layer


def encoding_width(channels: int, n_frequencies: int) -> int:
    """Channels after encoding: the values and, per octave, their sines and cosines."""
    return channels * (1 + 2 * n_frequencies)


def sdf_layer_widths(conf: SdfConfig) -> Widths:
    """(inputs, outputs) of each layer; a layer before a skip is narrower by the encoded point that is appended."""
    encoded = encoding_width(conf.d_in, conf.multires)
    sizes = [encoded] + [conf.d_hidden] * conf.n_layers + [conf.d_out]
    return [
        (sizes[index], sizes[index + 1] - (encoded if index + 1 in conf.skip_in else 0))
        for index in range(len(sizes) - 1)
    ]


def color_layer_widths(conf: ColorConfig) -> Widths:
    """(inputs, outputs) of each layer; the view direction's encoding widens the first one, where the mode reads it."""
    first = conf.d_in + conf.d_feature
    if conf.mode != "no_view_dir":
        first += encoding_width(VIEW_WIDTH, conf.multires_view) - VIEW_WIDTH
    sizes = [first] + [conf.d_hidden] * conf.n_layers + [conf.d_out]
    return list(zip(sizes[:-1], sizes[1:], strict=True))


def nerf_trunk_widths(conf: NerfConfig) -> Widths:
    """(inputs, outputs) of the layers before the heads; the encoded point is appended after each skip."""
    point = encoding_width(conf.d_in, conf.multires)
    after = [conf.W + point if index in conf.skips else conf.W for index in range(conf.D - 1)]
    return [(inputs, conf.W) for inputs in [point, *after]]


def parameter_count(model: ModelConfig) -> int:
    """Trained numbers of all networks that the conf builds."""
    if model.type == NERF:
        return 2 * _nerf_parameters(model.nerf)
    sdf, color = model.sdf_network, model.rendering_network
    count = 1 + _parameters(sdf_layer_widths(sdf), sdf.weight_norm)
    count += _parameters(color_layer_widths(color), color.weight_norm)
    return count + (_nerf_parameters(model.nerf) if model.neus_renderer.n_outside > 0 else 0)


def _nerf_parameters(conf: NerfConfig) -> int:
    """Of one NeRF network with its heads: features, density, view layer, colour."""
    view = encoding_width(conf.d_in_view, conf.multires_view)
    heads = [(conf.W, conf.W + 1), (view + conf.W, conf.W // 2), (conf.W // 2, 3)]
    return _parameters(nerf_trunk_widths(conf) + heads, has_norms=False)


def _parameters(widths: Widths, has_norms: bool) -> int:
    """Weights and biases, and a length for each row where weights are normalised."""
    return sum(inputs * outputs + outputs * (2 if has_norms else 1) for inputs, outputs in widths)


def ray_numbers(model: ModelConfig) -> int:
    """float32 numbers that a step or a picture keeps of each ray, at the least: what is drawn, placed and handed on."""
    renderer = model.renderer
    if model.type == NERF:
        fine = renderer.n_samples + renderer.n_importance
        return 2 * fine + renderer.n_samples  # depths and weights; the jitter
    sections = renderer.n_samples + renderer.n_importance
    return 9 * sections + renderer.n_outside  # see models.structs.RenderOutput
