"""Colour profiles of photographs, such as Display P3, Adobe RGB and ProPhoto RGB: their colours as sRGB."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

from data.errors import DamagedError, read_by_library

SAME = 2  # levels of 255 by which profiles of sRGB of several programs differ
STEPS = 6  # colours per channel of which profiles are compared


def profile_words(profile: bytes) -> str:
    """A note on photographs with this profile; "" if their colours are not converted."""
    name = _to_srgb(profile)[0]
    return f"colour profile {name}, converted to sRGB" if name else ""


def to_srgb(pixels: np.ndarray, profile: bytes) -> np.ndarray:
    """RGB(A) pixels [H, W, C], uint8 or uint16, with a profile, as sRGB; depth and alpha are kept, other images too.

    The profile is applied with 8 bits per channel, as Pillow does.
    """
    transform = _to_srgb(profile)[1]
    if pixels.shape[2] < 3 or transform is None:
        return pixels
    most = np.iinfo(pixels.dtype).max
    eight = np.rint(pixels[..., :3] * (255 / most)).astype(np.uint8)
    rgb = _applied(eight, transform).astype(pixels.dtype) * (most // 255)
    return np.concatenate([rgb, pixels[..., 3:]], axis=2)


@lru_cache(maxsize=8)
def _to_srgb(profile: bytes) -> tuple[str, ImageCms.ImageCmsTransform | None]:
    """The name of a profile and its transform; ("", None) for sRGB, and for profiles that are not of RGB or damaged."""
    try:
        with read_by_library():
            given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            name = " ".join((given.profile.profile_description or "").split()) or "without a name"
            transform = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), "RGB", "RGB")
    except DamagedError:
        return "", None
    colors = np.stack(np.meshgrid(*[np.linspace(0, 255, STEPS).astype(np.uint8)] * 3), axis=-1).reshape(1, -1, 3)
    is_srgb = np.abs(_applied(colors, transform).astype(int) - colors).max() <= SAME
    return ("", None) if is_srgb else (name, transform)


def _applied(rgb: np.ndarray, transform: ImageCms.ImageCmsTransform) -> np.ndarray:
    """uint8 [H, W, 3] in the output space of a transform."""
    return np.asarray(ImageCms.applyTransform(Image.fromarray(rgb), transform))
