"""Jittor on the device of this process; `models.machine.jittor_import` imports it at the first use of `jt`."""

from __future__ import annotations

import sys
from typing import Any

from models.machine.device import DeviceInfo as DeviceInfo
from models.machine.device import choice as choice
from models.machine.device import device_free_bytes as device_free_bytes


def __getattr__(name: str) -> Any:  # PEP 562: lets `from models.machine.backend import jt` import Jittor lazily
    """`jt`, the Jittor module."""
    if name == "jt":
        return _load()
    raise AttributeError(name)


def _load() -> Any:
    """The Jittor module, imported at the first call."""
    if choice.info is None:
        from models.machine import jittor_import  # toolchain, CUDA and caches: what a plan or a conf does not need

        return jittor_import.load()
    return sys.modules["jittor"]


def device_info() -> DeviceInfo:
    """The device of Jittor, which is imported if necessary."""
    _load()
    assert choice.info is not None
    return choice.info


def allow_tf32(is_allowed: bool) -> None:
    """Allow or forbid TF32 (10-bit factors) in matrix products on CUDA, of Jittor and of our operations."""
    _load().flags.use_tensorcore = int(is_allowed and device_info().name == "cuda")
