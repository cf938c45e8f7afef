"""The numbers in the names of images, where they count: which is missing, and which do not belong together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from data.errors import SceneError, listed


def numbers(paths: Sequence[Path]) -> list[int] | None:
    """The number of each file name; None where the names are not numbered.

    Numbered are names that differ in one number alone, written with or without leading zeros: IMG_7.png, IMG_12.jpg.
    """
    parts = [re.split(r"([0-9]+)", path.stem) for path in paths]
    if not parts or len({tuple(part[::2]) for part in parts}) > 1:
        return None
    columns = [[int(digits) for digits in column] for column in list(zip(*parts, strict=True))[1::2]]
    varying = [column for column in columns if len(set(column)) > 1] if len(paths) > 1 else columns
    return varying[0] if len(varying) == 1 and len(set(varying[0])) == len(paths) else None


def require_same_numbers(images: Sequence[Path], masks: Sequence[Path]) -> None:
    """Raises SceneError where both are numbered and one of `masks` has another number than its image."""
    of_images, of_masks = numbers(images), numbers(masks)
    if of_images is None or of_masks is None:
        return
    for image, mask, own, other in zip(images, masks, of_images, of_masks, strict=True):
        if own != other:
            raise SceneError(
                f"{mask.parent}: in order {mask.name} is the mask of {image.name}, and their numbers differ; a "
                "photograph or a mask is missing there, so put it back, or give each mask its photograph's number"
            )


def require_no_gap(source: Path, images: Sequence[Path], cameras: int) -> None:
    """Raises SceneError where a number is missing among the images and `source` has a camera for it.

    The i-th image is given camera i, so that all after the gap would have the camera of the one before.
    `cameras`: how many there are. Names may count from 0, as the cameras do, or from any other number.
    """
    found = numbers(images)
    if found is None or cameras <= len(found):
        return
    first, last = min(found), max(found)
    start = 0 if cameras > last else first  # the number that camera 0 stands for
    missing = sorted({*range(start, min(last, start + cameras))} - set(found)) if cameras > last - start else []
    if not missing:
        return
    named = listed([str(number) for number in missing])
    after = next(path for path, number in zip(images, found, strict=True) if number > missing[0])
    raise SceneError(
        f"{images[0].parent}: the names skip {named}, and {source.name} has {cameras} cameras for "
        f"{len(found)} photographs, so that from {after.name} on each would have the camera of another; renumber the "
        "cameras, or put back what is missing and choose by dataset.train_views"
    )
