"""Colour profiles of photographs, such as Display P3, Adobe RGB and ProPhoto RGB: their colours as sRGB."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

from data.errors import DamagedError, read_by_library
from data.io.metadata import ADOBE_RGB, CMYK, UNCALIBRATED

SAME = 2  # levels of 255 by which profiles of sRGB of several programs differ
STEPS = 6  # colours per channel of which profiles are compared
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
    rgb = _from_adobe(eight) if transform is None else _applied(eight, transform)
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
    colors = np.stack(np.meshgrid(*[np.linspace(0, 255, STEPS).astype(np.uint8)] * 3), axis=-1).reshape(1, -1, 3)
    is_srgb = np.abs(_applied(colors, transform).astype(int) - colors).max() <= SAME
    return ("", None) if is_srgb else (name, transform)


def _applied(rgb: np.ndarray, transform: ImageCms.ImageCmsTransform) -> np.ndarray:
    """uint8 [H, W, 3] in the output space of a transform."""
    return np.asarray(ImageCms.applyTransform(Image.fromarray(rgb), transform))


def _from_adobe(rgb: np.ndarray) -> np.ndarray:
    """uint8 [H, W, 3] of Adobe RGB as sRGB (IEC 61966-2-1)."""
    linear = ((np.arange(256) / 255.0) ** ADOBE_GAMMA).astype(np.float32)[rgb] @ SRGB_FROM_ADOBE.T
    linear = np.clip(linear, 0.0, 1.0)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** np.float32(1 / 2.4) - 0.055)
    return np.rint(255.0 * curved).astype(np.uint8)
