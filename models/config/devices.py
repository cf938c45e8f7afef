"""Values of a conf that depend on the device: any key may be a block `{ cpu = ..., cuda = ... }`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.config.strict import ConfigError

CPU, CUDA = DEVICES = ("cpu", "cuda")


def of_device(tree: Any, device: str, key: str = "") -> Any:
    """The tree of a conf with the value of one device in place of each block of devices.

    Raises ConfigError, naming the key, for a block that lacks a device or has other keys.
    """
    if not isinstance(tree, Mapping):
        return tree
    if not tree.keys() & set(DEVICES):
        return {name: of_device(value, device, f"{key}.{name}".lstrip(".")) for name, value in tree.items()}
    if not key:
        raise ConfigError("cpu and cuda: are no blocks of a conf; give a key, KEY = { cpu = ..., cuda = ... }")
    if set(tree) != set(DEVICES):
        raise ConfigError(f"{key}: a value for each device needs both, {{ cpu = ..., cuda = ... }}, and nothing else")
    return tree[device]
