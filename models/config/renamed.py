"""Keys of the version before, which are still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.config.strict import AUTO

SHARED = ("patches_weight", "prune_from", "shell")  # in both blocks
OF_OPEN = ("samples", "section", "cells", "threshold", "blur_step", "points_from", "depth_until")
# Old key -> new key; "": no longer used.
RENAMED = {f"packed.{name}": f"inside.{name}" for name in ("prune_from", "shell", "hull_margin", "largest_inv_s")}
RENAMED |= {f"background.{name}": f"open.{name}" for name in (*SHARED, *OF_OPEN)}
RENAMED |= {"patches.weight": "inside.patches_weight", "background.bias": "sdf_grid.bias"}
RENAMED |= {"packed.points_until": "", "photographs.exposure_from": ""}
OF_GAUSSIANS = (
    "absolute beyond color_rate degrees_until densify densify_every densify_from densify_until first_opacity "
    "first_size growth least_opacity least_pull mean_rate mean_rate_end noise opacity_rate reset_every rest_rate "
    "size_rate split_size turn_rate"
)
RENAMED |= {f"gaussians.{name}": "" for name in OF_GAUSSIANS.split()}
# Old defaults, in place of which the new keys have their own.
DEFAULTS = {"packed.largest_inv_s": 4.0, "background.prune_from": 0.3, "background.bias": 0.3}


def renamed(key: str) -> str:
    """The key of today for a key of the version before; the key itself otherwise."""
    block, _, name = key.partition(".")
    return f"{block}.{RENAMED.get(name) or name}"


def outdated_line(found: Mapping[str, str]) -> str:
    """A line on what `migrate` found; "" for nothing."""
    keys = ", ".join(f"{old} ({new})" for old, new in found.items())
    return keys and f"the conf has keys of the version before, read as those in parentheses: {keys}"


def migrate(tree: Mapping[str, Any]) -> dict[str, str]:
    """Replace the old keys in the nested dicts of a conf; returns them with those of today."""
    model = tree.get("model")
    found: dict[str, str] = {}
    if not isinstance(model, dict):
        return found
    for old, new in RENAMED.items():
        (block, name), (to, _, key) = old.split("."), new.partition(".")
        if not isinstance(model.get(block), dict) or name not in model[block]:
            continue
        found[f"model.{old}"] = f"model.{new}" if new else "no longer used"
        value = model[block].pop(name)
        if old == "background.bias" and model.get("sdf_grid", {}).get("bias") == 0.5:
            del model["sdf_grid"]["bias"]  # its default then, which this key replaced without masks
        if old == "photographs.exposure_from" and value and model[block].get("exposure"):
            model[block]["exposure"] = AUTO
        if new and value != DEFAULTS.get(old):
            model.setdefault(to, {})[key] = value
    if not model.get("background", True):
        del model["background"]
    return found
