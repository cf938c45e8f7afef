"""Colours of photographs as sRGB of 8 or 16 bits: profiles, such as Display P3, and 16 bits of which few are used."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

from data.errors import DamagedError, read_by_library
from data.io.metadata import ADOBE_RGB, CMYK, UNCALIBRATED
from data.pixels import Levels

SAME_LEVELS = 2  # levels of 255 by which profiles of sRGB of several programs differ
COLOUR_STEPS = 6  # colours per channel of which profiles are compared
NOTES = {
    CMYK: "CMYK without a colour profile, whose colours are approximate: save it as sRGB",
    UNCALIBRATED: "no colour profile, although EXIF says that its colours are not sRGB: read as sRGB",
}
# Adobe RGB (1998), of which sRGB has the white and the primaries of red and blue: section 4.3.4.
ADOBE_GAMMA = 563 / 256
SRGB_FROM_ADOBE = np.array([[1.39836, -0.39836, 0.0], [0.0, 1.0, 0.0], [0.0, -0.04293, 1.04293]], np.float32)


def profile_words(profile: bytes) -> str:
    """A note on photographs with this profile, of `Metadata`; "" if their colours are not converted."""
    name = ADOBE_RGB.decode() + ", by EXIF" if profile == ADOBE_RGB else _to_srgb(profile)[0]
    return NOTES.get(profile) or (f"colour profile {name}, converted to sRGB" if name else "")


def to_srgb(pixels: np.ndarray, profile: bytes) -> np.ndarray:
    """RGB(A) pixels [H, W, C], uint8 or uint16, with a profile, as sRGB; depth and alpha are kept, other images too.

    The profile is applied with 8 bits per channel, as Pillow does.
    """
    transform = _to_srgb(profile)[1]
    is_adobe = profile == ADOBE_RGB
    if pixels.shape[2] < 3 or not (is_adobe or (transform is not None and transform.input_mode == "RGB")):
        return pixels
    most = np.iinfo(pixels.dtype).max
    eight = np.rint(pixels[..., :3] * (255 / most)).astype(np.uint8)
    rgb = (
        _from_adobe(eight)
        if transform is None
        else np.asarray(ImageCms.applyTransform(Image.fromarray(eight), transform))
    )
    return np.concatenate([rgb.astype(pixels.dtype) * (most // 255), pixels[..., 3:]], axis=2)


def cmyk_as_srgb(encoded: bytes, profile: bytes) -> np.ndarray | None:
    """A photograph in CMYK with a profile as uint8 [H, W, 3]; None for others, which OpenCV decodes."""
    transform = _to_srgb(profile)[1]
    if transform is None or transform.input_mode != "CMYK":
        return None
    with Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(ImageCms.applyTransform(image, transform)) if image.mode == "CMYK" else None


@lru_cache(maxsize=8)
def _to_srgb(profile: bytes) -> tuple[str, ImageCms.ImageCmsTransform | None]:
    """The name of a profile and its transform; ("", None) for sRGB, and for profiles of grey or that are damaged."""
    try:
        with read_by_library():
            given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            name = " ".join((given.profile.profile_description or "").split()) or "without a name"
            mode = given.profile.xcolor_space.strip()
            transform = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), mode, "RGB")
    except DamagedError:
        return "", None
    if mode != "RGB":
        return name, transform
    colors = np.stack(np.meshgrid(*[np.linspace(0, 255, COLOUR_STEPS).astype(np.uint8)] * 3), axis=-1).reshape(1, -1, 3)
    converted = np.asarray(ImageCms.applyTransform(Image.fromarray(colors), transform))
    is_srgb = np.abs(converted.astype(int) - colors).max() <= SAME_LEVELS
    return ("", None) if is_srgb else (name, transform)


def _from_adobe(rgb: np.ndarray) -> np.ndarray:
    """uint8 [H, W, 3] of Adobe RGB as sRGB (IEC 61966-2-1)."""
    linear = ((np.arange(256) / 255.0) ** ADOBE_GAMMA).astype(np.float32)[rgb] @ SRGB_FROM_ADOBE.T
    linear = np.clip(linear, 0.0, 1.0)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** np.float32(1 / 2.4) - 0.055)
    return np.rint(255.0 * curved).astype(np.uint8)


# Cameras of 12 bits and thermal ones write images of 16 bits that use a small part of their range.
SMALL_RANGE = 2**14  # levels: a quarter of 16 bits
OUTLIERS = 1e-4  # fraction of the colours of an image, such as dead pixels


def levels_of(image: np.ndarray) -> Levels:
    """The levels of an image without the outermost OUTLIERS of its colours, such as dead pixels."""
    low, high = np.quantile(image[..., :3], (OUTLIERS, 1.0 - OUTLIERS))
    return Levels(int(low), math.ceil(high))


def small_range(levels: Iterable[Levels]) -> Levels | None:
    """The range to which images of 16 bits are stretched, the same for all; None if they use a quarter of the levels.

    It begins at 0 unless the lowest level is over half of the highest one, and then ends at a power of two.
    """
    each = np.array(list(levels), int).reshape(-1, 2)
    low, high = int(each[:, 0].min(initial=2**16)), int(each[:, 1].max(initial=0))
    if not 0 < high - low < SMALL_RANGE:
        return None
    return Levels(low, high) if 2 * low > high else Levels(0, 2 ** high.bit_length() - 1)


def range_words(levels: Levels) -> str:
    """A note on images that are stretched."""
    return f"16 bits of which only {levels.low} to {levels.high} are used, stretched to the whole range, equally in all"


def stretched(image: np.ndarray, levels: Levels | None) -> np.ndarray:
    """A uint16 image [H, W, C] with the colours at `levels` mapped to all 16 bits; other images as they are."""
    if levels is None or image.dtype != np.uint16:
        return image
    shares = (image[..., :3].astype(np.float32) - levels.low) / (levels.high - levels.low)
    colors = np.rint(65535 * np.clip(shares, 0.0, 1.0)).astype(np.uint16)
    return np.concatenate([colors, image[..., 3:]], axis=2)
