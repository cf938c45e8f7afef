"""Keys of the version before, which are still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.config.strict import AUTO

OF_OPEN = ("prune_from", "samples", "section", "cells", "blur_step", "depth_until")
WEIGHTS = {
    "packed": ("free", "points", "curvature"),
    "inside": ("patches",),
    "open": ("patches",),
    "background": ("patches",),
    "photographs": ("exposure",),
    "gaussians": ("opacity", "size", "distortion", "normal"),
}
PATCHES = "train.patches_weight"
# Old key -> new key; "": no longer used.
RENAMED = {f"model.packed.{name}": f"model.inside.{name}" for name in ("prune_from", "hull_margin")}
RENAMED |= {f"model.background.{name}": f"model.open.{name}" for name in OF_OPEN}
RENAMED |= {f"model.{block}.{name}_weight": f"train.{name}_weight" for block in WEIGHTS for name in WEIGHTS[block]}
RENAMED |= {"model.packed.largest_inv_s": "model.inside.largest_inv_s", "model.background.bias": "model.sdf_grid.bias"}
RENAMED |= {"model.patches.weight": PATCHES, "model.patches.begins": "train.patches_from"}
RENAMED |= {"model.packed.points_until": "", "model.photographs.exposure_from": ""}
# Keys that are constants today.
CONSTANT = {
    "gaussians": (
        "absolute beyond color_rate degrees_until densify densify_every densify_from densify_until first_opacity "
        "first_size growth least_opacity least_pull mean_rate mean_rate_end noise opacity_rate reset_every rest_rate "
        "size_rate split_size turn_rate"
    ),
    "packed": "anywhere levels_until network_rate sharpness_rate shell steps_until warm_up",
    "inside": "shell",
    "open": "points_from shell threshold",
    "background": "points_from shell threshold",
    "sdf_grid": "gradient",
    "radiance": "anywhere hull_margin levels_until network_rate steps_until threshold warm_up",
}
RENAMED |= {f"model.{block}.{name}": "" for block, names in CONSTANT.items() for name in names.split()}
# Old defaults, in place of which the new keys have their own.
DEFAULTS = {"model.packed.largest_inv_s": 4.0, "model.background.prune_from": 0.3, "model.background.bias": 0.3}


def renamed(key: str) -> str:
    """The key of today for a key of the version before; the key itself otherwise."""
    return RENAMED.get(key) or key


def outdated_line(found: Mapping[str, str]) -> str:
    """A line on what `migrate` found; "" for nothing."""
    keys = ", ".join(f"{old} ({new})" for old, new in found.items())
    return keys and f"the conf has keys of the version before, read as those in parentheses: {keys}"


def migrate(tree: dict[str, Any]) -> dict[str, str]:
    """Replace the old keys in the nested dicts of a conf; returns them with those of today."""
    model = tree.get("model")
    found: dict[str, str] = {}
    if not isinstance(model, dict):
        return found
    for old, new in RENAMED.items():
        _, block, name = old.split(".")
        if not isinstance(model.get(block), dict) or name not in model[block]:
            continue
        value = model[block].pop(name)
        if old == "model.background.bias" and model.get("sdf_grid", {}).get("bias") == 0.5:
            del model["sdf_grid"]["bias"]  # its default then, which this key replaced without masks
        if old == "model.photographs.exposure_from" and value and model[block].get("exposure"):
            model[block]["exposure"] = AUTO
        if new == PATCHES and new in found.values() and value != tree["train"]["patches_weight"]:
            value = AUTO  # one weight with masks, another one without
        if new and value != DEFAULTS.get(old):
            *blocks, key = new.split(".")
            part = tree
            for each in blocks:
                part = part.setdefault(each, {})
            part[key] = value
        found[old] = new or "no longer used"
    if not model.get("background", True):
        del model["background"]
    return found
