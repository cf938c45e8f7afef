"""A whole conf: the blocks of every run, and the block `model` of its method. Read, check and write confs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from data.scenes.config import DatasetConfig
from models.config.blocks import GeneralConfig, TrainConfig
from models.config.hocon import (
    CPU,
    CUDA,
    DEVICES,
    RENAMED,
    key_meant,
    leaves,
    migrate,
    of_device,
    parse_tree,
    quoted,
    read_tree,
    renamed,
    write_tree,
)
from models.config.strict import (
    ConfigError,
    check_limits,
    check_part,
    excerpt,
    field_types,
    from_tree,
    leaf_fields,
    nearest,
)
from models.fields.conf import INITIALISATION_KEYS
from models.methods.block import DEFAULT, ModelConfig
from models.methods.confs import NEUS
from models.methods.registry import METHODS

MODEL = "model"
MORE = "more"  # the field of a block that contains the blocks of `further()`
NEEDED_PATHS = ("base_exp_dir", "data_dir", "render_cameras_name", "object_cameras_name")


@dataclass(frozen=True)
class ExperimentConfig:
    """The blocks of a conf, validated."""

    general: GeneralConfig
    dataset: DatasetConfig
    train: TrainConfig
    model: ModelConfig
    # Dotted key -> device -> value, of the keys that depend on the device. The blocks have the values of the CPU, or
    # those that `for_device` chose.
    by_device: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    # Keys of the version before that it was read from -> those of today.
    outdated: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class _Blocks:
    """The blocks before the method is known."""

    general: GeneralConfig
    dataset: DatasetConfig
    train: TrainConfig
    model: dict


def load_config(path: str | Path, case: str = "", overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The conf in a HOCON file, validated.

    `case` replaces ${case} and the literal CASE_NAME; `overrides` are `key=value` with HOCON values (text needs no
    quotes). Includes are files, relative to the including file; URLs are not fetched. Raises ConfigError, naming the
    file and the key, for anything invalid.
    """
    tree = read_tree(Path(path), case, [_assignment(text) for text in overrides])
    source = f"{path} with --set {' --set '.join(overrides)}" if overrides else str(path)
    conf = build(tree, source)
    for override in overrides:
        _require_read(override, conf.model)
    return conf


def parse_config(text: str, source: str) -> ExperimentConfig:
    """The conf in a HOCON text such as that of `to_hocon`; `source` names it in error messages. Raises ConfigError."""
    return build(parse_tree(text, source), source)


def to_hocon(conf: ExperimentConfig) -> str:
    """The conf with all keys, as text that `parse_config` and `load_config` read back to an equal one."""
    return write_tree(tree_of(conf))


def flat(conf: ExperimentConfig) -> dict[str, Any]:
    """All keys, dotted -> value, in the order of the blocks."""
    return leaves(tree_of(conf))


def tree_of(conf: ExperimentConfig) -> dict[str, Any]:
    """All blocks as nested dicts; an omitted block is None."""
    tree = asdict(replace(conf, by_device={}))
    del tree["by_device"], tree["outdated"]
    tree[MODEL] |= tree[MODEL].pop(MORE, {})
    return tree


def from_blocks(tree: object) -> ExperimentConfig:
    """The conf of a tree, not validated; raises ConfigError for unknown, missing or ill-typed keys.

    Blocks of `model` that belong to other methods are checked and discarded: confs include the blocks of several
    methods.
    """
    blocks = from_tree(_Blocks, tree)
    name = blocks.model.get("type", NEUS)
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(f"model.type = {excerpt(name)}: must be one of {', '.join(METHODS)}")
    block = METHODS[name].block
    further = block.further()
    names = {field.name for field in fields(block)} - {MORE}
    known = {key: kind for method in METHODS.values() for key, kind in _keys(method.block).items() if key != MORE}
    own, more = dict[str, Any](), dict[str, Any]()
    for key, value in blocks.model.items():
        if key not in known:
            raise ConfigError(f"model.{key}: unknown key{nearest(str(key), known)}")
        if key in names:
            own[key] = value
        elif key in further:
            more[key] = from_tree(further[key], value, f"model.{key}")
        elif is_dataclass(known[key]):
            check_part(known[key], value, f"model.{key}")
    model = from_tree(block, own | ({MORE: more} if further else {}), MODEL)
    dataset = blocks.dataset  # the published code does not read this key
    if not model.sees_from_within:
        dataset = replace(dataset, camera_outside_sphere=True)
    return ExperimentConfig(blocks.general, dataset, blocks.train, model)


def validate(conf: ExperimentConfig) -> None:
    """Raises ConfigError, naming the key, for invalid or inconsistent values."""
    check_limits(replace(conf, by_device={}))
    for block in ("general", "dataset"):
        for name, value in vars(getattr(conf, block)).items():
            if name in NEEDED_PATHS and not value.strip():
                raise ConfigError(f"{block}.{name}: is empty; name a file or folder")
    conf.train.check()
    conf.model.check()


def known_leaves() -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """Dotted key -> annotated type and limits of every leaf of the confs of all methods, in the order of the blocks."""
    leaves = {key: leaf for key, leaf in leaf_fields(_Blocks).items() if key != MODEL}
    for kind in METHODS.values():
        blocks = {MODEL: kind.block} | {f"{MODEL}.{name}": block for name, block in kind.block.further().items()}
        for prefix, block in blocks.items():
            leaves |= leaf_fields(block, f"{prefix}.")
    del leaves[f"{MODEL}.{MORE}"]
    choices = {"type": tuple(METHODS)}
    for kind in METHODS.values():
        choices |= {key: (DEFAULT, *known) for key, known in kind.block.choices.items()}
    return leaves | {f"{MODEL}.{key}": (str, {"one_of": known}) for key, known in choices.items()}


def network_differences(a: ModelConfig, b: ModelConfig) -> list[str]:
    """The differences of conf b from the checkpoint's conf a that weights depend on, one sentence each."""
    if a.type != b.type:
        return [f"model.type: {a.type} in the checkpoint, {b.type} in the conf"]
    differences = []
    for key in a.choices:
        was, is_now = getattr(a, key), getattr(b, key)
        if was != is_now:
            differences.append(f"model.{key}: {was} in the checkpoint, {is_now} in the conf")
    for name in (name for name in a.network_blocks if name in b.network_blocks):
        old, new = a.block(name), b.block(name)
        for key in (own.name for own in fields(old) if own.name not in INITIALISATION_KEYS):
            was, is_now = getattr(old, key), getattr(new, key)
            if was != is_now:
                differences.append(
                    f"model.{name}.{key}: {excerpt(was)} in the checkpoint, {excerpt(is_now)} in the conf"
                )
    return differences


def _keys(block: type[ModelConfig]) -> dict[str, Any]:
    """The keys below `model` of a method, with their types."""
    return {**field_types(block), **block.further()}


def build(tree: dict[str, object], source: str) -> ExperimentConfig:
    """Tree -> conf of the CPU, validated; error messages start with the source of the conf."""
    outdated = migrate(tree)
    try:
        trees = [of_device(tree, device) for device in DEVICES]
        confs = [from_blocks(one) for one in (trees if trees[0] != trees[1] else trees[:1])]
        _require_valid(confs)
        on_cpu, on_cuda = flat(confs[0]), flat(confs[-1])
        if on_cpu.keys() != on_cuda.keys():
            raise ConfigError("the method and its fields must be the same for every device")
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    differs = [key for key, value in on_cpu.items() if on_cuda[key] != value]
    by_device = {key: {CPU: on_cpu[key], CUDA: on_cuda[key]} for key in differs}
    return replace(confs[0], by_device=by_device, outdated=outdated)


def _require_valid(confs: Sequence[ExperimentConfig]) -> None:
    """Raises ConfigError for values out of range for a device, and for values that are inconsistent for all devices.

    An override may be consistent on one device alone, whose values are validated again when it is chosen.
    """
    errors = []
    for conf in confs:
        check_limits(conf)
        try:
            validate(conf)
        except ConfigError as error:
            errors.append(error)
    if len(errors) == len(confs):
        raise errors[0]


def _assignment(override: str) -> str:
    """`key=value` as a HOCON assignment: the key is checked, and text is quoted so that any path is possible."""
    key, equals, value = (part.strip() for part in override.partition("="))
    if not override.isprintable():
        raise ConfigError(f"--set {excerpt(override)}: must not contain line breaks or control characters")
    if not equals or not key:
        raise ConfigError(f"--set {override}: write it as KEY=VALUE, such as train.end_iter=1000")
    leaves = known_leaves()
    is_block = any(leaf.startswith(key + ".") for leaf in leaves)
    if key not in leaves and not is_block and key not in RENAMED:
        meant = key_meant(key, leaves)
        raise ConfigError(
            f"--set {override}: unknown key {key}{f'; did you mean {meant}?' if meant else nearest(key, leaves)}"
        )
    is_plain_text = leaves.get(key, (None,))[0] is str and not value.startswith('"') and "${" not in value
    if key in leaves and value.startswith("{") and not is_plain_text:
        raise ConfigError(f"--set {override}: takes a plain value, for every device; write a block into a conf")
    return f"{key} = {quoted(value) if is_plain_text else value}"


def _require_read(override: str, model: ModelConfig) -> None:
    """Raises ConfigError if the method does not have the block, or the key directly below `model`, of an override.

    Confs may contain the blocks of other methods, since they include those of several; an override is meant for this
    training.
    """
    block, _, key = renamed(override.partition("=")[0].strip()).partition(".")
    name = key.partition(".")[0]
    if block != MODEL or not name or name in asdict(model) or name in getattr(model, MORE, {}):
        return
    owners = [method for method, kind in METHODS.items() if name in _keys(kind.block)]
    raise ConfigError(
        f"--set {override}: model.type = {model.type} does not use model.{name}, only {', '.join(owners)}; remove "
        "the override or change model.type"
    )


def for_device(conf: ExperimentConfig, device: str) -> ExperimentConfig:
    """The conf with the values of a device, "cpu" or "cuda"; a value of neither, set in Python, is kept."""
    if not conf.by_device:
        return conf
    tree = tree_of(conf)
    tree[MODEL] = {name: value for name, value in tree[MODEL].items() if value is not None}
    for key, values in conf.by_device.items():
        *blocks, name = key.split(".")
        part = tree
        for block in blocks:
            part = part[block]
        if part[name] in values.values():
            part[name] = values[device]
    return replace(build(tree, f"the conf for {device}"), by_device=conf.by_device, outdated=conf.outdated)


def as_trained(conf: ExperimentConfig, before: ExperimentConfig) -> ExperimentConfig:
    """The conf with the values of the device for which the conf of a checkpoint was made: its weights have those sizes.

    It is the device with most of the checkpoint's values, since single ones may have been overridden; the conf is
    unchanged if no device has more than the other.
    """
    then = flat(before)
    common = {
        device: sum(then.get(key) == values[device] for key, values in conf.by_device.items()) for device in DEVICES
    }
    alike = [device for device in DEVICES if common[device] == max(common.values())]
    return for_device(conf, *alike) if len(alike) == 1 else conf
