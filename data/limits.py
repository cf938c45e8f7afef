"""Ranges in the declaration of a dataclass, and the check of values from outside against types and ranges."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from data.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Working-frame units. At this distance the spacing of float32 is 0.008 of the unit sphere's radius; a camera farther
# away has a wrong matrix.
FARTHEST_CAMERA = 1e5
SHOWN_CHARACTERS = 60  # of a wrong value in a message
_kinds = cache(get_type_hints)
KIND_NAMES: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def limits(
    default: Any = dataclasses.MISSING,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    one_of: Collection[str] = (),
    count: tuple[int, float] = (0, math.inf),
) -> Any:
    """A dataclass field with a range; without a default the value is required. `count`: entries of a tuple, the fewest
    and the most.
    """
    metadata = {"at_least": at_least, "above": above, "at_most": at_most, "one_of": one_of, "count": count}
    return dataclasses.field(default=default, metadata=metadata)


def excerpt(value: object) -> str:
    """The value as quoted in messages, truncated if long."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return "a number beyond 1.8e308"  # Python writes no more than 4,300 digits
    text = str(list(value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def fault(value: Any, metadata: Mapping[str, Any]) -> str:
    """What is wrong with a value according to the `limits` of its field; "" if it is valid."""
    if metadata.get("at_least") is not None and value < metadata["at_least"]:
        return f"must be at least {metadata['at_least']}"
    if metadata.get("above") is not None and value <= metadata["above"]:
        return f"must be greater than {metadata['above']}"
    if metadata.get("at_most") is not None and value > metadata["at_most"]:
        return f"must be at most {metadata['at_most']}"
    if metadata.get("one_of") and value not in metadata["one_of"]:
        return f"must be one of {', '.join(metadata['one_of'])}"
    return ""


def limits_of(kind: type[DataclassInstance], name: str) -> Mapping[str, Any]:
    """The `limits` of a field by name."""
    return {field.name: field.metadata for field in dataclasses.fields(kind)}[name]


def span(kind: type[DataclassInstance], name: str) -> tuple[Any, Any]:
    """The smallest and the largest value of a field with both limits."""
    return limits_of(kind, name)["at_least"], limits_of(kind, name)["at_most"]


def require_values(block: DataclassInstance) -> None:
    """Raises UserError for the first field of a dataclass that is not of its type, not finite or out of its range."""
    name = type(block).__name__
    for field in dataclasses.fields(block):
        value, kind = getattr(block, field.name), _kinds(type(block))[field.name]
        if isinstance(value, str) and Path in (kind, *get_args(kind)):
            raise UserError(f"{name}: {field.name} must be a Path, not a text; write Path({excerpt(value)})")
        if wrong := _wrong(value, kind, field.metadata):
            raise UserError(f"{name}: {field.name} = {excerpt(value)} {wrong}")
        if dataclasses.is_dataclass(kind):
            require_values(value)


def _wrong(value: Any, kind: Any, metadata: Mapping[str, Any]) -> str:
    """What is wrong with a value of a field of type `kind`; "" if nothing is."""
    kinds = get_args(kind)
    if NoneType in kinds:
        return "" if value is None else _wrong(value, kinds[0], {**metadata, "also": (None,)})
    if get_origin(kind) in (tuple, Sequence):
        least, most = metadata.get("count", (0, math.inf))
        if not isinstance(value, tuple | list) or not least <= len(value) <= most:
            return f"must be a tuple of {least} or more" if least < most else f"must be a tuple of {least}"
        return next(filter(None, (_wrong(item, kinds[0], metadata) for item in value)), "")
    if metadata.get("one_of"):
        allowed = (*metadata.get("also", ()), *metadata["one_of"])
        is_allowed = isinstance(value, str) and value in allowed
        return "" if is_allowed else f"must be one of {', '.join(map(repr, allowed))}"
    fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if kind in (int, float):  # NaN is not below the largest number
        fits = fits and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if isinstance(value, str | Path) and "\0" in str(value):
        return "must not contain a null character"
    return fault(value, metadata) if fits else f"must be {KIND_NAMES.get(kind, f'a {kind.__name__}')}"
