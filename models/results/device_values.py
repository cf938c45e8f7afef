"""The values of a conf for the device of a run."""

from __future__ import annotations

from dataclasses import replace

from models.conf import MODEL, ExperimentConfig, build, flat, tree_of
from models.config.hocon import DEVICES
from models.config.strict import excerpt
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig
from models.machine import backend
from models.ops import sizes
from models.ops.sizes import encoding_width


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


def sizes_line(conf: ExperimentConfig) -> str:
    """One line for the log: the keys that depend on the device, with their values; "" if there are none."""
    now = flat(conf)
    chosen = {key: now[key] for key in conf.by_device}
    fitting = [device for device in DEVICES if chosen == {key: one[device] for key, one in conf.by_device.items()}]
    listed = ", ".join(f"{key} = {excerpt(value)}" for key, value in chosen.items())
    return f"sizes for {' and '.join(fitting) or 'another device'}: {listed}" if chosen else ""


def tiles_line(conf: ExperimentConfig) -> str:
    """One line for the log if a GPU computes networks layer by layer, because of their sizes; else ""."""
    networks = {name: getattr(conf.model, name, None) for name in ("nerf", "sdf_network", "rendering_network")}
    large = [name for name, network in networks.items() if network is not None and not fits_tiles(network)]
    if backend.device_info().name == "cpu" or not large:
        return ""
    return f"too large for tiles of points, so that a GPU computes their layers one by one: {', '.join(large)}"


def fits_tiles(network: NerfConfig | SdfConfig | ColorConfig) -> bool:
    """Whether a GPU evaluates a network in tiles: by its layers, their channels, and those of the encoded inputs."""
    if isinstance(network, NerfConfig):  # the density counts as a layer
        view = encoding_width(network.d_in_view, network.multires_view)
        layers, width, encoded = network.D + len(network.heads) + 1, network.W, max(network.trunk[0][0], view)
    elif isinstance(network, SdfConfig):
        layers, width = network.n_layers + 1, max(network.d_hidden, network.features)
        encoded = network.embedded_width
    else:
        layers, width = network.n_layers + 1, max(network.d_hidden, network.d_feature)
        encoded = network.widths[0][0] - network.d_feature
    return sizes.fits_tiles(layers, width, encoded)
