"""360-degree photographs (equirectangular): recognised, and cut into perspective views."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from data.errors import DAMAGE, UserError
from data.io.images import UNREAD_SUFFIXES
from data.parsed_scene import ParsedScene, PosedImage
from data.prepare.sources import MIN_IMAGES

# Views of 90 degrees, every 45 degrees around: neighbouring views share half of their content, as structure from motion
# needs. Elevations beyond +-45 degrees, which mostly show the sky and the tripod, are not used.
YAWS = tuple(range(0, 360, 45))
FIELD_OF_VIEW = 90.0  # degrees
# "Photo Sphere XMP Metadata" (developers.google.com/streetview/spherical-metadata), as attribute or element
TAG = re.compile(rb"GPano:ProjectionType\W{1,4}equirectangular")
VIEW_NAME = re.compile(r"[0-9]{4,}_[0-9]{3}[.]png")
XMP_NAMES = ("xmp", "XML:com.adobe.xmp")  # of JPEG and WebP, of PNG, in Pillow


def is_tagged(path: Path) -> bool:
    """Whether the file has the tag of an equirectangular panorama and is twice as wide as high."""
    try:
        with Image.open(path) as image:
            (width, height), info = image.size, image.info
    except (*DAMAGE, OSError, Image.DecompressionBombError):
        return False
    if width != 2 * height:
        return False
    texts = [info.get(name, b"") for name in XMP_NAMES]
    return any(TAG.search(text.encode() if isinstance(text, str) else text) for text in texts)


def require_whole(name: str, pixels: np.ndarray) -> None:
    """Raises UserError unless the image [H, W, ...] has the 2:1 aspect ratio of a whole panorama."""
    height, width = pixels.shape[:2]
    if width != 2 * height:
        raise UserError(
            f"--panorama: {name} has {width}x{height} pixels, and an equirectangular panorama is twice as wide as "
            "high; export it uncropped, or omit --panorama"
        )


def require_no_mask_files(sources: Sequence[Path], is_panorama: bool, masks: str) -> None:
    """Raises UserError if mask files or rectangles are given for panoramas: they are not cut into views."""
    if is_panorama or any(is_tagged(path) for path in sources if path.suffix.lower() not in UNREAD_SUFFIXES):
        raise UserError(
            f"--masks {masks}: masks and rectangles of 360-degree photographs are not supported; use colorkey, grabcut "
            "or rembg, which are applied to the perspective views"
        )


def view_name(number: int, yaw: int) -> str:
    """The file name of a view of panorama `number`."""
    return f"{number:04d}_{yaw:03d}.png"


def facing_views(parsed: ParsedScene, centre: np.ndarray | None) -> ParsedScene:
    """The scene without the views of panoramas that do not show `centre` [3].

    None: the mean of the camera centres, which is near the object if the cameras surround it. Other images are kept. If
    fewer than three images would remain, all are kept.
    """
    if centre is None:
        centre = np.mean([image.c2w[:3, 3] for image in parsed.images], axis=0)
    kept = [image for image in parsed.images if not VIEW_NAME.fullmatch(image.path.name) or _shows(image, centre)]
    if len(kept) < MIN_IMAGES or len(kept) == len(parsed.images):
        return parsed
    return replace(parsed, images=tuple(kept))


def _shows(image: PosedImage, point: np.ndarray) -> bool:
    """Whether a point [3] is within the image."""
    seen = image.lens.intrinsics @ (np.linalg.inv(image.c2w) @ np.append(point, 1.0))[:3]
    size = np.array(image.size or image.lens.size)
    return bool(seen[2] > 0 and (seen[:2] >= 0).all() and (seen[:2] <= seen[2] * size).all())


def cut(panorama: np.ndarray, largest: int) -> Iterator[tuple[int, np.ndarray, float]]:
    """The perspective views of an equirectangular image [H, 2 H, 3]: yaw in degrees, image [S, S, 3], focal length.

    The size S keeps the resolution at the centre of the view, up to `largest`.
    """
    height, width = panorama.shape[:2]
    half = np.tan(np.radians(FIELD_OF_VIEW) / 2)
    side = max(1, min(largest, round(2 * half * width / (2 * np.pi))))
    focal = side / (2 * half)
    rows, columns = np.mgrid[:side, :side]
    x, y = (columns + 0.5 - side / 2) / focal, (rows + 0.5 - side / 2) / focal
    latitude = np.arctan2(y, np.hypot(x, 1.0))  # downwards
    row = ((latitude / np.pi + 0.5) * height - 0.5).astype(np.float32)
    for yaw in YAWS:
        longitude = np.arctan2(x, 1.0) + np.radians(yaw)
        column = ((longitude / (2 * np.pi) + 0.5) % 1.0 * width - 0.5).astype(np.float32)
        yield yaw, cv2.remap(panorama, column, row, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP), focal
