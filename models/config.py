"""Confs: read, checked, and written; the blocks themselves are in models/config_blocks.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from models.config_blocks import (
    EXPONENTIAL,
    INITIALISATION_KEYS,
    INPUT_WIDTHS,
    NERF,
    NETWORK_BLOCKS,
    NEUS,
    ColorConfig,
    ExperimentConfig,
    GeneralConfig,
    ModelConfig,
    NerfConfig,
    NerfRendererConfig,
    RendererConfig,
    SdfConfig,
    TrainConfig,
    VarianceConfig,
)
from models.config_hocon import parse_tree, quoted, read_tree, write_tree
from models.config_strict import ConfigError, check_limits, from_tree, leaf_types, nearest, shown

__all__ = [
    "EXPONENTIAL",
    "INPUT_WIDTHS",
    "NERF",
    "NEUS",
    "ColorConfig",
    "ConfigError",
    "ExperimentConfig",
    "GeneralConfig",
    "ModelConfig",
    "NerfConfig",
    "NerfRendererConfig",
    "RendererConfig",
    "SdfConfig",
    "TrainConfig",
    "VarianceConfig",
    "from_tree",
    "load_config",
    "network_differences",
    "parse_config",
    "to_hocon",
    "validate",
]


def load_config(path: str | Path, case: str = "", overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The conf in a HOCON file, validated.

    case replaces ${case} and the literal CASE_NAME; overrides are `key=value`, the value in HOCON (text needs no
    quotes). Includes are files, relative to the file that includes them; nothing is fetched.
    Raises ConfigError, naming the file and the key, for everything that cannot be used.
    """
    tree = read_tree(Path(path), case, [_assignment(text) for text in overrides])
    source = f"{path} with --set {' --set '.join(overrides)}" if overrides else str(path)
    return _build(tree, source)


def parse_config(text: str, source: str) -> ExperimentConfig:
    """The conf in a HOCON text such as `to_hocon` writes; source names it in the ConfigError of an unusable one."""
    return _build(parse_tree(text, source), source)


def to_hocon(conf: ExperimentConfig) -> str:
    """The conf with every key spelt out, as text that `parse_config` and `load_config` read back to an equal one."""
    return write_tree(asdict(conf))


def validate(conf: ExperimentConfig) -> None:
    """Raises ConfigError for values that cannot work, alone or together, in a sentence that names the key."""
    check_limits(conf)
    _check_paths(conf)
    _check_schedule(conf.train)
    if conf.model.type == NERF:
        _check_radiance(conf.model)
        return
    _check_sdf(conf.model.sdf_network)
    _check_color(conf.model.rendering_network, conf.model.sdf_network)
    _check_sampling(conf.model.neus_renderer)
    if conf.model.neus_renderer.n_outside > 0:
        _check_background(conf.model.nerf)


def network_differences(a: ModelConfig, b: ModelConfig) -> list[str]:
    """The keys in which the conf b contradicts weights trained under the checkpoint's conf a, one sentence each."""
    if a.type != b.type:
        return [f"model.type: {a.type} in the checkpoint, {b.type} in the conf"]
    found = []
    for block in NETWORK_BLOCKS[a.type]:
        old, new = getattr(a, block), getattr(b, block)
        for name in (field.name for field in fields(old) if field.name not in INITIALISATION_KEYS):
            was, is_now = getattr(old, name), getattr(new, name)
            if was != is_now:
                found.append(f"model.{block}.{name}: {shown(was)} in the checkpoint, {shown(is_now)} in the conf")
    return found


def _build(tree: dict[str, object], source: str) -> ExperimentConfig:
    """Tree -> validated conf; every complaint starts with where the conf came from."""
    try:
        conf = from_tree(ExperimentConfig, tree)
        validate(conf)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return conf


def _assignment(override: str) -> str:
    """`key=value` as a HOCON assignment: the key checked, and text quoted so that any path can be given."""
    key, equals, value = (part.strip() for part in override.partition("="))
    if not override.isprintable():
        raise ConfigError(f"--set {shown(override)}: must not contain line breaks or control characters")
    if not equals or not key:
        raise ConfigError(f"--set {override}: write it as KEY=VALUE, such as train.end_iter=1000")
    leaves = leaf_types(ExperimentConfig)
    is_block = any(leaf.startswith(key + ".") for leaf in leaves)
    if key not in leaves and not is_block:
        raise ConfigError(f"--set {override}: unknown key {key}{nearest(key, leaves)}")
    is_plain_text = leaves.get(key) is str and not value.startswith('"') and "${" not in value
    return f"{key} = {quoted(value) if is_plain_text else value}"


def _check_paths(conf: ExperimentConfig) -> None:
    """The texts without which nothing can be read or written."""
    needed = {
        "general.base_exp_dir": conf.general.base_exp_dir,
        "dataset.data_dir": conf.dataset.data_dir,
        "dataset.render_cameras_name": conf.dataset.render_cameras_name,
        "dataset.object_cameras_name": conf.dataset.object_cameras_name,
    }
    for key, value in needed.items():
        if not value.strip():
            raise ConfigError(f"{key}: is empty; name a file or folder")


def _check_schedule(train: TrainConfig) -> None:
    """The warm-up ends before the training does: the cosine that follows divides by the steps in between."""
    if train.warm_up_end >= train.end_iter:
        raise ConfigError(
            f"train.warm_up_end = {train.warm_up_end:g}: must be below train.end_iter = {train.end_iter}; "
            "lower it (a twentieth of end_iter is usual)"
        )
    if train.learning_rate_decay == EXPONENTIAL and train.learning_rate_alpha == 0.0:
        raise ConfigError(
            "train.learning_rate_alpha = 0: an exponential decay never gets there; set it above 0, such as 0.1, or "
            "learning_rate_decay = cosine"
        )


def _check_sdf(sdf: SdfConfig) -> None:
    """Each skip lands on a hidden layer, and leaves the layer before it at least one output of its own."""
    key = "model.sdf_network.skip_in"
    if any(not 1 <= layer <= sdf.n_layers for layer in sdf.skip_in):
        raise ConfigError(f"{key} = {shown(sdf.skip_in)}: its layers must lie in 1..n_layers = {sdf.n_layers}")
    if sdf.skip_in and sdf.d_hidden <= sdf.embedded_width:
        raise ConfigError(
            f"model.sdf_network.d_hidden = {sdf.d_hidden}: with skip_in it must be above the {sdf.embedded_width} "
            f"values of the encoded input; raise it, lower multires = {sdf.multires}, or set skip_in = []"
        )


def _check_color(color: ColorConfig, sdf: SdfConfig) -> None:
    """The colour network takes what the SDF network and the mode hand it."""
    block = "model.rendering_network"
    if color.d_feature != sdf.d_out - 1:
        raise ConfigError(
            f"{block}.d_feature = {color.d_feature}: must be model.sdf_network.d_out - 1 = {sdf.d_out - 1}"
        )
    if color.d_in != INPUT_WIDTHS[color.mode]:
        raise ConfigError(f"{block}.d_in = {color.d_in}: must be {INPUT_WIDTHS[color.mode]} for mode = {color.mode}")


def _check_sampling(renderer: RendererConfig) -> None:
    """Importance sampling needs sections to refine and rounds to do it in."""
    if renderer.allows_importance(renderer.n_importance):
        return
    if renderer.n_samples < 2:
        raise ConfigError("model.neus_renderer.n_samples = 1: must be at least 2 where n_importance > 0")
    raise ConfigError("model.neus_renderer.up_sample_steps = 0: must be at least 1 where n_importance > 0")


def _check_background(nerf: NerfConfig) -> None:
    """What the renderer asks of the background network: points as (x, y, z, 1) / r, and view directions."""
    _check_nerf(nerf, 4, "where neus_renderer.n_outside > 0")


def _check_radiance(model: ModelConfig) -> None:
    """What a radiance field asks of its networks, points as (x, y, z) and view directions, and of near and far."""
    _check_nerf(model.nerf, 3, "where model.type = nerf")
    renderer = model.nerf_renderer
    if renderer.far <= renderer.near and (renderer.near, renderer.far) != (0.0, 0.0):
        raise ConfigError(
            f"model.nerf_renderer.far = {renderer.far:g}: must be above near = {renderer.near:g}; or set both to 0 for "
            "the span of the unit sphere"
        )


def _check_nerf(nerf: NerfConfig, d_in: int, where: str) -> None:
    """A NeRF network with view directions; `where` says when it needs `d_in` inputs."""
    if nerf.d_in != d_in:
        raise ConfigError(f"model.nerf.d_in = {nerf.d_in}: must be {d_in} {where}")
    if not nerf.use_viewdirs:
        raise ConfigError(f"model.nerf.use_viewdirs = false: must be true {where}")
    if any(layer < 0 or layer == nerf.D - 1 for layer in nerf.skips):
        last = nerf.D - 1
        raise ConfigError(f"model.nerf.skips = {shown(nerf.skips)}: must not be negative nor the last layer, {last}")
