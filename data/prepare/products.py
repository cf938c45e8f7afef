"""The scene folder's own files: written from the work folder, put in their place, and looked at again later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from data.config import DatasetConfig
from data.errors import listed
from data.inspection.overview import overview
from data.io.files import make_folder, remove, remove_empty
from data.io.images import IMAGE_SUFFIXES, ImageError, read_image, write_image
from data.parsed_scene import MASK_HALF
from data.prepare.contact_sheet import contact_sheet
from data.prepare.frames import Frame
from data.prepare.grabcut_masks import LEAST_COVER, MOST_COVER, Cut
from data.prepare.owned_files import made_here, record, require_free
from data.prepare.steps import is_as_noted
from data.readers.colmap import read_colmap
from data.scenes.preprocess import preprocess
from data.scenes.scene import Scene, check_scene
from data.writers.neus import CAMERA_FILE, POINTS_FILE, write_neus_scene

FRESH = "scene"  # where in the work folder it is written first
MASK_SHEET = "masks.png"
OVERVIEW = "overview.png"
# What the scene folder gets. The camera file makes it a scene: it comes last and goes first.
PRODUCTS = ("image", "mask", str(Path(POINTS_FILE).parent), MASK_SHEET, OVERVIEW, CAMERA_FILE)


def write_scene(
    work: Path, target: Path, frames: Sequence[Frame], roi: str, cameras_outside: bool, cut: Cut | None
) -> list[str]:
    """Develop the images and put the products in their place; returns what is to be said.

    `cut` gives the scene its masks, where these need cameras; where `cameras_outside`, the region is shrunk until no
    camera stands within. Raises UserError where the region or these masks do not fit, or the disk takes no more.
    """
    conf = DatasetConfig(str(work), CAMERA_FILE, CAMERA_FILE, cameras_outside, roi=roi)
    parsed = replace(read_colmap(work, conf), name=target.resolve().name, notes=())
    with np.errstate(all="ignore"):  # numbers that overflow are found by their results, and named
        scene = check_scene(preprocess(parsed, parsed.images, conf), cameras_outside)
    called = {frame.name: frame.source for frame in frames}
    scene = replace(scene, image_names=tuple(called[name] for name in scene.image_names))
    if cut is not None:
        scene = cut(scene)
    fresh = work / FRESH
    remove(fresh)
    write_neus_scene(fresh, scene)
    if scene.masks is not None:
        write_image(fresh / MASK_SHEET, contact_sheet(scene.images, scene.masks))
    write_image(fresh / OVERVIEW, overview(scene))
    return [*scene.notes, *_mask_notes(scene), *_put(work, target)]


def _mask_notes(scene: Scene) -> list[str]:
    """What is to be said of the masks: how much they cover, and where they cover nothing or nearly all."""
    if scene.masks is None:
        return []
    shares = np.array([np.mean(mask > MASK_HALF) for mask in scene.masks])
    odd = np.flatnonzero((shares < LEAST_COVER) | (shares > MOST_COVER))
    named = f"; look at {listed([f'{view:03d}' for view in odd])}, which are nearly empty or full" if len(odd) else ""
    return [f"masks cover {shares.min():.0%} to {shares.max():.0%} of the photographs, see {MASK_SHEET}{named}"]


def _put(work: Path, target: Path) -> list[str]:
    """Move the products from the work folder to their places in `target`; what was made here before goes.

    Returns what is to be said. Raises UserError, before anything changes, where something else is in their places.
    """
    fresh, made = work / FRESH, made_here(work, target)
    new = [path.relative_to(fresh).as_posix() for path in sorted(fresh.rglob("*")) if path.is_file()]
    require_free(target, new, made)
    record(work, {*new, *made})
    for name in sorted(made, key=_place, reverse=True):
        remove(target / name)
    for name in sorted(new, key=_place):
        make_folder(target, Path(name).parent)
        (fresh / name).replace(target / name)
    remove_empty(target / name for name in PRODUCTS)
    remove(fresh)
    record(work, new)
    return _foreign_notes(target, new)


def _place(name: str) -> int:
    """Where a product stands in PRODUCTS."""
    return PRODUCTS.index(Path(name).parts[0])


def _foreign_notes(target: Path, made: Sequence[str]) -> list[str]:
    """What is to be said of images that lie among the products and are none."""
    found = [path for kind in ("image", "mask") for path in sorted((target / kind).glob("*"))]
    names = [path.relative_to(target).as_posix() for path in found if path.suffix.lower() in IMAGE_SUFFIXES]
    others = [name for name in names if name not in made]
    return [f"{listed(others)}: not made here, left as it was, and read with the scene"] if others else []


def differences(target: Path, written: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """(damaged, changed): the names of products that are missing or cut, and of those that became something else.

    `written` holds what the products were when they were written, by `steps.noted`.
    """
    other = [name for name, size_and_sum in written.items() if not is_as_noted(target / name, size_and_sum)]
    damaged = [name for name in other if not _is_usable(target / name, written[name])]
    return damaged, [name for name in other if name not in damaged]


def _is_usable(path: Path, size_and_sum: object) -> bool:
    """Whether the file is an image that can be decoded, or any other file that is no shorter than it was."""
    try:
        if path.suffix.lower() in IMAGE_SUFFIXES:
            return read_image(path).size > 0
        return path.is_file() and path.stat().st_size >= size_and_sum[0]
    except (ImageError, OSError, ValueError, TypeError, LookupError):
        return False
