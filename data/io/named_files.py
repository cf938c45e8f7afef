"""Photographs and masks that other programs name, perhaps on another system."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath

from data.errors import SceneError, listed
from data.io.files import is_file
from data.io.images import IMAGE_SUFFIXES, list_images

SPELLINGS = tuple(spelt for suffix in IMAGE_SUFFIXES for spelt in (suffix, suffix.upper()))
MASK_FOLDERS = ("masks", "mask")
OF_MAPS = ("mask", "depth", "normal")  # begin the names of folders without photographs
MARKS = ("_", ".", "-", " ")  # between the name of a photograph and the word mask
MOST_PARTS, LONGEST_PART = 128, 255  # parts of a path, and bytes of a part


def parts_inside(name: str) -> tuple[str, ...]:
    """The parts of a path of any system, without its drive or root and without leading `..`.

    () for a name that no file has, as its parts are too long or too many.
    """
    path = PureWindowsPath(os.path.normpath(name.replace("\\", "/")))
    parts = path.parts[bool(path.anchor) :]
    parts = parts[sum(part == ".." for part in parts) :]  # after normpath they are the first ones
    is_possible = len(parts) <= MOST_PARTS and all(
        len(part.encode("utf-8", "replace")) <= LONGEST_PART for part in parts
    )
    return parts if is_possible else ()


def leads_out(name: str) -> bool:
    """Whether a relative path begins with `..`, or is empty."""
    return not name or os.path.normpath(name.replace("\\", "/")).split("/")[0] == ".."


def spelled_file(folder: Path, name: str) -> Path | None:
    """The file, or the one with an image suffix appended or its suffix in the other letter case; None without any."""
    parts = parts_inside(name)
    if not parts:
        return None
    path = folder.joinpath(*parts)
    longer = [path.with_name(path.name + spelt) for spelt in SPELLINGS]
    others = [path.with_suffix(spelt) for spelt in SPELLINGS if spelt.lower() == path.suffix.lower()]
    return next(filter(is_file, [path, *longer, *others]), None)


def named_file(folder: Path, name: str) -> Path | None:
    """The image that a name, perhaps of another system, means: the file in `folder` with the longest end of it.

    Else the only file with its last part, in any letter case, of its own folder or, where that does not exist, anywhere
    below `folder` but in folders of masks and maps; None if there is none, or several.
    """
    parts = parts_inside(name)
    if not parts:
        return None
    home, last = folder.joinpath(*parts[:-1]), parts[-1].lower()
    if is_file(home / parts[-1]):
        return home / parts[-1]
    is_there = home.is_dir()
    paths = [path for path in home.iterdir() if path.name.lower() == last and path.is_file()] if is_there else []
    if not paths and (len(parts) == 1 or not is_there):
        tails = [folder.joinpath(*parts[start:]) for start in range(1, len(parts))]
        paths = list(filter(is_file, tails))[:1] or [
            path
            for path in folder.rglob("*")
            if path.name.lower() == last
            and path.is_file()
            and not any(part.lower().startswith(OF_MAPS) for part in path.relative_to(folder).parts[:-1])
        ]
    return paths[0] if len(paths) == 1 else None


def spelled_below(folder: Path, name: str) -> Path | None:
    """`named_file` of the name, or of it with an image suffix."""
    return next(filter(None, (named_file(folder, name + spelt) for spelt in ("", *SPELLINGS))), None)


def masks_folder(folder: Path) -> Path | None:
    """masks/ or mask/ of a scene folder, in any letter case; None without any."""
    named = {entry.name.lower(): entry for entry in folder.iterdir() if entry.is_dir()}
    return next((named[name] for name in MASK_FOLDERS if name in named), None)


def mask_stems(photograph: Path) -> list[str]:
    """The names of its mask without their suffixes, in lower case, that of the photograph last."""
    name, stem = photograph.name.lower(), photograph.stem.lower()
    own = [f"{stem}{mark}mask" for mark in MARKS] + [f"mask{mark}{stem}" for mark in MARKS]
    return [f"{name}.mask", f"{name}_mask", *own, name, stem]


def mask_files(folder: Path, names: Sequence[str]) -> list[Path | None]:
    """The mask file of each photograph, None where there is none, or not one for each.

    `names` are paths relative to the folder of the photographs. For a/IMG_1.jpg it is one of IMG_1.jpg.mask.png
    (RealityCapture), IMG_1_mask.png (Metashape; also with others of MARKS), mask_IMG_1.png, IMG_1.jpg.png (COLMAP) and
    IMG_1.png in a/ or in the mask folder itself, in any letter case and also as JPEG.
    """
    by_stem: dict[Path, dict[str, Path]] = {}  # the masks of each folder
    masks: list[Path | None] = []
    for path in map(Path, names):
        homes = [folder.joinpath(*path.parts[start:-1]) for start in range(len(path.parts))]
        for home in homes:
            if home not in by_stem:
                by_stem[home] = {mask.stem.lower(): mask for mask in (list_images(home) if home.is_dir() else ())}
        stems = mask_stems(path)
        masks.append(next((by_stem[home][stem] for home in homes for stem in stems if stem in by_stem[home]), None))
    uses = Counter(masks)  # the same name in two folders
    return [mask if uses[mask] == 1 else None for mask in masks]


def required_mask_files(folder: Path, names: Sequence[str], flag: str, fix: str) -> list[Path]:
    """The same; raises SceneError if one is missing. In `fix`, {name} and {stem} are those of the first one."""
    masks = mask_files(folder, names)
    missing = [name for name, mask in zip(names, masks, strict=True) if mask is None]
    if missing:
        stem = Path(missing[0]).with_suffix("")
        raise SceneError(
            f"{flag}{folder}: {len(missing)} of {len(names)} photographs have no mask, the first is {missing[0]}; "
            f"{fix.format(name=missing[0], stem=stem)}"
        )
    return [mask for mask in masks if mask is not None]


def numbers_in_names(paths: Sequence[Path]) -> list[int] | None:
    """The number of each file name; None if the names are not numbered.

    Names are numbered if they differ in exactly one number, with or without leading zeros: IMG_7.png, IMG_12.jpg.
    """
    parts = [re.split(r"([0-9]+)", path.stem) for path in paths]
    if not parts or len({tuple(part[::2]) for part in parts}) > 1:
        return None
    columns = [[int(digits) for digits in column] for column in list(zip(*parts, strict=True))[1::2]]
    varying = [column for column in columns if len(set(column)) > 1] if len(paths) > 1 else columns
    return varying[0] if len(varying) == 1 and len(set(varying[0])) == len(paths) else None


def require_same_numbers(images: Sequence[Path], masks: Sequence[Path]) -> None:
    """Raises SceneError if both are numbered and a mask has another number than its image."""
    of_images, of_masks = numbers_in_names(images), numbers_in_names(masks)
    if of_images is None or of_masks is None:
        return
    for image, mask, own, other in zip(images, masks, of_images, of_masks, strict=True):
        if own != other:
            raise SceneError(
                f"{mask.parent}: in order {mask.name} is the mask of {image.name}, but their numbers differ; restore "
                "the missing photograph or mask, or give each mask the number of its photograph"
            )


def require_no_gap(source: Path, images: Sequence[Path], cameras: int) -> None:
    """Raises SceneError if a number is missing among the images and `source` has a camera for it.

    Image i gets camera i, so all images after the gap would get the wrong camera. `cameras` is the number of cameras.
    The numbers of the names may start at 0, as those of the cameras, or at any other number.
    """
    numbers = numbers_in_names(images)
    if numbers is None or cameras <= len(numbers):
        return
    first, last = min(numbers), max(numbers)
    start = 0 if cameras > last else first  # the number in the name of camera 0's image
    missing = sorted({*range(start, min(last, start + cameras))} - set(numbers)) if cameras > last - start else []
    if not missing:
        return
    named = listed([str(number) for number in missing])
    after = next(path for path, number in zip(images, numbers, strict=True) if number > missing[0])
    raise SceneError(
        f"{images[0].parent}: the names skip {named}, and {source.name} has {cameras} cameras for "
        f"{len(numbers)} photographs, so from {after.name} on each would get the camera of another one; renumber the "
        "cameras, or restore the missing photographs and select by dataset.train_views"
    )
