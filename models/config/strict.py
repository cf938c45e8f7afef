"""Strict conversion of mappings to frozen dataclasses: unknown, missing and ill-typed keys are errors.

Allowed types and ranges are defined by the annotations of the dataclasses and by `limits` (data/limits.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from data.errors import UserError
from data.limits import KIND_NAMES, fault
from data.limits import excerpt as excerpt
from data.limits import limits as limits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Block = TypeVar("Block", bound="DataclassInstance")
Auto = Literal["auto"]  # `int | Auto`: a number, or "auto" for a choice by the program
AUTO: Auto = "auto"

# The words that pyhocon's get_bool accepts (unquoted true and false are bool already).
BOOLEAN_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
MOST_CONF_STEPS = 10**9  # at a millisecond each, eleven days
LARGEST_WEIGHT = 1e6  # a larger one leaves the other losses below the rounding of float32
# Below it, float32 rounds the steps of weights of order 1 to zero; above it, each step replaces the weights.
LEAST_RATE, LARGEST_RATE = 1e-9, 100.0


class ConfigError(UserError):
    """An invalid conf or override."""


def weight(default: Any = dataclasses.MISSING) -> Any:
    """The weight of a loss; 0: without it."""
    return limits(default, at_least=0, at_most=LARGEST_WEIGHT)


def rate(default: float) -> Any:
    """A learning rate besides train.learning_rate, or a factor on it."""
    return limits(default, at_least=LEAST_RATE, at_most=LARGEST_RATE)


def every(default: Any = dataclasses.MISSING, least: int = 0) -> Any:
    """A number of steps."""
    return limits(default, at_least=least, at_most=MOST_CONF_STEPS)


def share(default: Any = dataclasses.MISSING) -> Any:
    """A fraction of a whole."""
    return limits(default, at_least=0, at_most=1)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: `; did you mean x?`, or the known names if none is similar."""
    known = list(known)
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), list(by_lower_case), n=1)
    if matches:
        return f"; did you mean {by_lower_case[matches[0]]}?"
    return f"; known: {', '.join(known)}"


@cache
def field_types(block_class: type) -> Mapping[str, Any]:
    """The type of each field; for an optional block, the type of the block."""
    hints = get_type_hints(block_class)
    return {name: next(filter(dataclasses.is_dataclass, get_args(hint)), hint) for name, hint in hints.items()}


def leaf_fields(block_class: Any, prefix: str = "") -> dict[str, tuple[Any, Mapping[str, Any]]]:
    """Dotted key -> annotated type and `limits` of every leaf below a block class."""
    leaves: dict[str, tuple[Any, Mapping[str, Any]]] = {}
    kinds = field_types(block_class)
    for field in dataclasses.fields(block_class):
        key, kind = prefix + field.name, kinds[field.name]
        leaves |= leaf_fields(kind, key + ".") if dataclasses.is_dataclass(kind) else {key: (kind, field.metadata)}
    return leaves


def from_tree(block_class: type[Block], mapping: object, path: str = "") -> Block:
    """The dataclass of a mapping, with its nested blocks.

    path: dotted key of the block, for the messages; "" for the whole conf.
    Raises ConfigError, naming the key, for an unknown, missing or ill-typed one.
    """
    kinds = field_types(block_class)
    given = _given(kinds, mapping, path)
    for field in dataclasses.fields(block_class):
        if field.name not in given and field.default is field.default_factory is dataclasses.MISSING:
            what = "block" if dataclasses.is_dataclass(kinds[field.name]) or kinds[field.name] is dict else "key"
            where = f"{path}.{field.name}" if path else field.name
            raise ConfigError(f"{where}: this {what} is missing and has no default; add it")
    return block_class(**given)


def check_part(block_class: type, mapping: object, path: str) -> None:
    """Raises ConfigError for an unknown, ill-typed or out-of-range key; keys may be missing."""
    metadata = {field.name: field.metadata for field in dataclasses.fields(block_class)}
    for key, value in _given(field_types(block_class), mapping, path).items():
        if fault := _fault(value, metadata[key]):
            raise ConfigError(f"{path}.{key} = {excerpt(value)}: {fault}")


def _given(kinds: Mapping[str, Any], mapping: object, path: str) -> dict[str, Any]:
    """The converted values of a block; raises ConfigError for a value that is not a block, and for invalid keys."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{path or 'the conf'}: must be a block {{ key = value ... }}, not {excerpt(mapping)}")
    prefix = path + "." if path else ""
    for key in mapping:
        if key not in kinds:
            raise ConfigError(f"{prefix}{key}: unknown {'key' if path else 'block'}{nearest(str(key), kinds)}")
    return {key: _convert(value, kinds[key], prefix + key) for key, value in mapping.items()}


def check_limits(block: Any, path: str = "") -> None:
    """Raises ConfigError for the first value in a dataclass that is outside the `limits` of its field."""
    for field in dataclasses.fields(block):
        value, key = getattr(block, field.name), f"{path}.{field.name}" if path else field.name
        if dataclasses.is_dataclass(value):
            check_limits(value, key)
        elif isinstance(value, Mapping):  # further blocks at the same level
            for name, further in value.items():
                check_limits(further, f"{path}.{name}")
        elif fault := _fault(value, field.metadata):
            raise ConfigError(f"{key} = {excerpt(value)}: {fault}")


def _fault(value: Any, metadata: Mapping[str, Any]) -> str:
    """`fault` of a value that may be "auto"."""
    return "" if value == AUTO else fault(value, metadata)


def _convert(value: object, kind: Any, path: str) -> Any:
    """The value as `kind`: a block, a scalar or a tuple of scalars; raises ConfigError for anything else."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return from_tree(kind, value, path)
    if kind in KIND_NAMES:
        return _scalar(value, kind, path)
    if kind is dict or get_origin(kind) is Mapping:  # blocks that are parsed elsewhere
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: must be a block {{ key = value ... }}, not {excerpt(value)}")
        return dict(value)
    if Auto in get_args(kind):
        return _number_or_auto(value, get_args(kind)[0], path)
    element = get_args(kind)[0]
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{path} = {excerpt(value)}: must be a list in brackets, such as [4] or []")
    return tuple(_scalar(item, element, path) for item in value)


def _number_or_auto(value: object, kind: type, path: str) -> Any:
    if value == AUTO:
        return AUTO
    try:
        return _scalar(value, kind, path)
    except ConfigError as error:
        raise ConfigError(f"{error} or auto") from None


def _scalar(value: object, kind: type, path: str) -> Any:
    """A bool, int, float or str; raises ConfigError instead of changing the value."""
    if kind is bool and isinstance(value, str):
        value = BOOLEAN_WORDS.get(value.lower(), value)
    if kind is str and isinstance(value, str) and not value.isprintable():
        raise ConfigError(f"{path} = {excerpt(value)}: must not contain control characters")
    if kind is str and isinstance(value, str):
        value = os.path.expanduser(value)
    fits = isinstance(value, kind)
    if kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        value, fits = _number(value, kind)
    elif isinstance(value, bool) and kind is not bool:
        fits = False
    if not fits:
        hint = "; write it in quotes" if kind is str and isinstance(value, int | float) else ""
        raise ConfigError(f"{path} = {excerpt(value)}: must be {KIND_NAMES[kind]}{hint}")
    return value


def _number(value: float, kind: type) -> tuple[float, bool]:
    """The number as int or float, and whether it is valid: finite, and integral for int."""
    try:
        as_float = float(value)
    except OverflowError:
        return value, False
    if not math.isfinite(as_float):
        return value, False
    if kind is float:
        return as_float, True
    fits = as_float.is_integer() and abs(value) <= 2**63 - 1  # the largest 64-bit integer of numpy and Jittor
    return (int(value), True) if fits else (value, False)
