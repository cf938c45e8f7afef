"""Boxes around the object on a few images, from a file boxes.json or from flags.

`{"boxes": {"IMG_1.jpg": [x0, y0, x1, y1], ...}}`: pixels of the upright image, x to the right, y down, from the corner
of the first pixel; x1, y1 are exclusive. A file in the folder of images uses their names and pixels; a file in the
scene folder uses those of its image/ (000.png, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data.errors import UserError, listed
from data.io.exif import read_exif
from data.io.images import read_image
from data.io.json_file import kind, number, read_object
from data.prepare.sources import HEIC_SUFFIXES, read_source_image

BOXES_FILE = "boxes.json"
OF_SCENE = "image/"  # prefix of the names in the scene folder, since a source image may have the same name
LEAST_SIDE = 2.0  # pixels; a smaller box is a mistake
TURNED = 5  # EXIF orientations from this value on swap width and height


@dataclass(frozen=True)
class Box:
    """A rectangle around the object on one image."""

    name: str  # of the image
    corners: tuple[float, ...]  # left, top, right, bottom
    source: str  # file or flag, for messages


def read_boxes(path: Path) -> list[Box]:
    """The boxes of a file; raises UserError if it contains none, or anything else."""
    content = read_object(path).get("boxes")
    if not isinstance(content, dict) or not content:
        raise UserError(f'{path}: holds no boxes; write {{"boxes": {{"IMG_1.jpg": [x0, y0, x1, y1]}}}}')
    found = []
    for name, value in content.items():
        if not isinstance(value, list) or len(value) != 4:
            raise UserError(f"{path}: {name}: is {kind(value)} and must be four numbers, left, top, right, bottom")
        found.append(Box(name, tuple(number(str(path), name, corner) for corner in value), str(path)))
    return found


def boxes_of_flags(flags: Sequence[Sequence[str]]) -> list[Box]:
    """The boxes of `--box NAME X0 Y0 X1 Y1`; raises UserError for invalid numbers and two boxes of one image."""
    found: list[Box] = []
    for name, *texts in flags:
        if name in (box.name for box in found):
            raise UserError(f"--box {name}: is given twice; give one rectangle for each photograph")
        try:
            corners = tuple(float(text) for text in texts)
        except ValueError as error:
            raise UserError(f"--box {name} {' '.join(texts)}: give four numbers after the photograph's name") from error
        found.append(Box(name, corners, "--box"))
    return found


def find_boxes(images: Path, target: Path, given: Sequence[Box], sources: Sequence[Path]) -> dict[str, np.ndarray]:
    """The boxes as fractions of their images' sides, [4] by image name.

    From flags and the folder of images; without any, from the scene folder. Raises UserError if there are none, and for
    a box that fits no image.
    """
    beside = images / BOXES_FILE
    boxes = [*(read_boxes(beside) if images.is_dir() and beside.is_file() else []), *given]
    by_name = {path.name: path for path in sources} if images.is_dir() else {}
    if not boxes and (target / BOXES_FILE).is_file():
        boxes = read_boxes(target / BOXES_FILE)
        boxes = [replace(box, name=f"{OF_SCENE}{box.name}") for box in boxes]
        by_name = {f"{OF_SCENE}{path.name}": path for path in sorted((target / "image").glob("*.png"))}
    if not boxes:
        raise UserError(
            "--masks box: there are no boxes; draw them around the object on a few photographs and write them to "
            f"{beside} or {target / BOXES_FILE}, or give --box NAME X0 Y0 X1 Y1"
        )
    return {box.name: _share(box, by_name) for box in boxes}


def _share(box: Box, by_name: Mapping[str, Path]) -> np.ndarray:
    """The corners [4] as fractions of the image's width and height, clipped to the image."""
    if box.name not in by_name:
        known = (
            f"there are {listed(list(by_name))}"
            if by_name
            else "frames of a video have no names: draw on the images of the scene folder"
        )
        raise UserError(f"{box.source}: {box.name}: no such photograph; {known}")
    width, height = _size(by_name[box.name])
    whole = np.array([width, height, width, height], dtype=np.float64)
    corners = np.clip(box.corners, 0.0, whole)
    if not np.isfinite(box.corners).all() or (corners[2:] - corners[:2] < LEAST_SIDE).any():
        numbers = " ".join(f"{corner:g}" for corner in box.corners)
        raise UserError(
            f"{box.source}: {box.name}: the box {numbers} contains none of the {width}x{height} pixels; give left, "
            "top, right, bottom"
        )
    return corners / whole


def _size(path: Path) -> tuple[int, int]:
    """(width, height) of an upright image."""
    pixels = read_source_image(path) if path.suffix.lower() in HEIC_SUFFIXES else read_image(path)
    height, width = pixels.shape[:2]
    is_turned = path.suffix.lower() not in HEIC_SUFFIXES and read_exif(path)[0] >= TURNED
    return (height, width) if is_turned else (width, height)
