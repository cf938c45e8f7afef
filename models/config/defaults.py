"""The values of keys in confs/base, which show the keys that a run has changed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.config.hocon import CASE_WORD, leaves, read_tree
from models.config.strict import ConfigError

BASE = Path(__file__).resolve().parents[2] / "confs" / "base"


@lru_cache
def base_values(kind: str) -> Mapping[str, Any]:
    """Dotted key -> value of every key of the program's base confs, for a method (`model.type`).

    Files that cannot be read are omitted.
    """
    found: dict[str, Any] = {}
    # the base of the method last, since later values replace earlier ones
    for path in sorted(BASE.glob("*.conf"), key=lambda path: path.stem == kind):
        try:
            found |= leaves(read_tree(path, CASE_WORD))
        except ConfigError:
            continue
    return found


def same(value: Any, base: Mapping[str, Any], key: str) -> bool:
    """Whether the value of a key equals that of its base, in any notation."""
    return key in base and _plain(value) == _plain(base[key])


def _plain(value: Any) -> Any:
    """A canonical form of each value: true and True, 1e-3 and 0.001, lists and tuples."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value).lower() if str(value).lower() in ("true", "false") else value
