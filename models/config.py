"""A conf as frozen dataclasses: one class per block, one field per published key, ours with defaults.

The keys are those of the published confs (https://github.com/Totoro97/NeuS/tree/6e0a230/confs) and of the
constructors they are handed to (models/fields.py and models/renderer.py there); confs/base/*.conf explains each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from data.config import DatasetConfig
from models.config_hocon import parse_tree, quoted, read_tree, write_tree
from models.config_strict import AUTO, Auto, ConfigError, check_limits, from_tree, leaf_types, limits, nearest, shown

MAX_FREQUENCIES = 24  # float32 has 24 significant bits: beyond them the octaves of an encoding are noise
MAX_SDF_LAYERS = 30  # the native network keeps its skips as the bits of a 32-bit integer
LOG_FLOAT32_MAX = 88.72  # exp of anything larger is infinite in float32
LARGEST_SEED = 2**31 - 1  # Jittor's generator takes a signed 32-bit seed
INPUT_WIDTHS = {"idr": 9, "no_view_dir": 6, "no_normal": 6}  # point 3, view 3, normal 3, less what a mode leaves out
# Keys that only shape the initial weights: another value does not contradict weights already trained.
INITIALISATION_KEYS = frozenset({"bias", "geometric_init", "inside_outside"})
LARGEST_EMA_DECAY = 0.999999  # float32 rounds what a larger one takes in of each step to nothing
NETWORK_BLOCKS = ("nerf", "sdf_network", "rendering_network")


@dataclass(frozen=True)
class GeneralConfig:
    """Where the results of an experiment go."""

    base_exp_dir: str
    recording: tuple[str, ...] = ()  # folders whose .py files are copied into <base_exp_dir>/recording


@dataclass(frozen=True)
class TrainConfig:
    """Schedule, losses and frequencies. Steps count optimiser steps; a frequency of 0 means never."""

    learning_rate: float = limits(above=0)
    learning_rate_alpha: float = limits(at_least=0, at_most=1)
    end_iter: int = limits(at_least=1)
    batch_size: int = limits(at_least=1)
    validate_resolution_level: int = limits(at_least=1)
    use_white_bkgd: bool
    save_freq: int = limits(at_least=0)
    val_freq: int = limits(at_least=0)
    val_mesh_freq: int = limits(at_least=0)
    report_freq: int = limits(at_least=1)
    igr_weight: float = limits(at_least=0)
    mask_weight: float = limits(at_least=0)
    warm_up_end: float = limits(0.0, at_least=0)
    anneal_end: float = limits(0.0, at_least=0)
    max_bad_steps: int = limits(10, at_least=1)  # in a row, before the run goes back to its last good checkpoint
    keep_checkpoints: int = limits(0, at_least=0)  # 0: all, as published
    seed: int = limits(0, at_least=0, at_most=LARGEST_SEED)
    render_chunk: int | Auto = limits(AUTO, at_least=1)  # rays at a time when an image is rendered
    ray_chunk: int | Auto = limits(AUTO, at_least=1)  # rays of a batch that are differentiated at a time
    memory_limit: float | Auto = limits(AUTO, above=0)  # GB, 10^9 bytes, that the chunks of "auto" are chosen for
    ema_decay: float = limits(0.0, at_least=0, at_most=LARGEST_EMA_DECAY)  # of the averaged weights; 0: none
    mesh_resolution: int = limits(64, at_least=2)  # grid points per side of the meshes written during training


@dataclass(frozen=True)
class NerfConfig:
    """The background network (inverted-sphere NeRF)."""

    D: int = limits(8, at_least=1)
    W: int = limits(256, at_least=2)
    d_in: int = limits(3, at_least=3, at_most=4)
    d_in_view: int = limits(3, at_least=3, at_most=3)
    multires: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    multires_view: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    output_ch: int = limits(4, at_least=1)
    skips: tuple[int, ...] = (4,)
    use_viewdirs: bool = False


@dataclass(frozen=True)
class SdfConfig:
    """The signed distance network."""

    d_in: int = limits(at_least=3, at_most=3)
    d_out: int = limits(at_least=2)
    d_hidden: int = limits(at_least=1)
    n_layers: int = limits(at_least=1, at_most=MAX_SDF_LAYERS)
    skip_in: tuple[int, ...] = (4,)
    multires: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    bias: float = 0.5
    scale: float = limits(1.0, above=0)
    geometric_init: bool = True
    weight_norm: bool = True
    inside_outside: bool = False

    @property
    def embedded_width(self) -> int:
        """Width of the encoded input: the point and, per octave, its sines and cosines."""
        return self.d_in * (1 + 2 * self.multires)


@dataclass(frozen=True)
class ColorConfig:
    """The colour network."""

    d_feature: int = limits(at_least=1)
    mode: str = limits(one_of=tuple(INPUT_WIDTHS))
    d_in: int = limits(at_least=1)
    d_out: int = limits(at_least=3, at_most=3)
    d_hidden: int = limits(at_least=1)
    n_layers: int = limits(at_least=1)
    weight_norm: bool = True
    multires_view: int = limits(0, at_least=0, at_most=MAX_FREQUENCIES)
    squeeze_out: bool = True


@dataclass(frozen=True)
class VarianceConfig:
    """The single sharpness parameter; inv_s = exp(10 * value)."""

    init_val: float = limits(at_most=LOG_FLOAT32_MAX / 10)


@dataclass(frozen=True)
class RendererConfig:
    """How many samples a ray gets, and where."""

    n_samples: int = limits(at_least=1)
    n_importance: int = limits(at_least=0)
    n_outside: int = limits(at_least=0)
    up_sample_steps: int = limits(at_least=0)
    perturb: float = limits(at_least=0)


@dataclass(frozen=True)
class ModelConfig:
    """The networks and the renderer."""

    nerf: NerfConfig
    sdf_network: SdfConfig
    variance_network: VarianceConfig
    rendering_network: ColorConfig
    neus_renderer: RendererConfig


@dataclass(frozen=True)
class ExperimentConfig:
    """A whole conf."""

    general: GeneralConfig
    dataset: DatasetConfig
    train: TrainConfig
    model: ModelConfig


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
    _check_sdf(conf.model.sdf_network)
    _check_color(conf.model.rendering_network, conf.model.sdf_network)
    _check_sampling(conf.model.neus_renderer)
    if conf.model.neus_renderer.n_outside > 0:
        _check_background(conf.model.nerf)


def network_differences(a: ModelConfig, b: ModelConfig) -> list[str]:
    """The keys in which the conf b contradicts weights trained under the checkpoint's conf a, one sentence each."""
    found = []
    for block in NETWORK_BLOCKS:
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
    if renderer.n_importance == 0:
        return
    if renderer.n_samples < 2:
        raise ConfigError("model.neus_renderer.n_samples = 1: must be at least 2 where n_importance > 0")
    if renderer.up_sample_steps < 1:
        raise ConfigError("model.neus_renderer.up_sample_steps = 0: must be at least 1 where n_importance > 0")


def _check_background(nerf: NerfConfig) -> None:
    """What the renderer asks of the background network: points as (x, y, z, 1) / r, and view directions."""
    if nerf.d_in != 4:
        raise ConfigError(f"model.nerf.d_in = {nerf.d_in}: must be 4 where neus_renderer.n_outside > 0")
    if not nerf.use_viewdirs:
        raise ConfigError("model.nerf.use_viewdirs = false: must be true where neus_renderer.n_outside > 0")
    if any(layer < 0 or layer == nerf.D - 1 for layer in nerf.skips):
        last = nerf.D - 1
        raise ConfigError(f"model.nerf.skips = {shown(nerf.skips)}: must not be negative nor the last layer, {last}")
