"""Reads PNG, JPEG, WebP and TIFF files and writes PNG and JPEG, in RGB order, with 8 or 16 bits per channel.

Samples are returned as stored (no resizing, no gamma), colours of another profile as sRGB. An EXIF orientation is not
applied, because calibration programs use the stored pixel grid too.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from data.errors import DamagedError, listed, read_by_library
from data.io.colors import cmyk_as_srgb, to_srgb
from data.io.files import open_input, read_regular, write_atomically
from data.io.headers import (
    DAMAGED,
    TIFF_SIGNATURES,
    TIFF_SUFFIXES,
    ImageError,
    header_size,
    require_whole_png,
    straight,
    tiff_page,
)
from data.io.metadata import read_metadata
from data.io.streams import native_stderr_silenced
from data.pixels import eight_bits, to_float

WRITTEN_SUFFIXES = (".png", ".jpg", ".jpeg")
IMAGE_SUFFIXES = (*WRITTEN_SUFFIXES, ".webp", *TIFF_SUFFIXES)

# Image formats that cameras, scanners and browsers write and that this module does not read.
UNREAD_SUFFIXES: tuple[str, ...] = (".heic", ".heif", ".avif", ".gif", ".bmp", ".jp2", ".jxl", ".exr", ".hdr")
UNREAD_SUFFIXES += (".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2")  # raw

# Larger images are rejected before decoding. The largest camera sensors have about 2 * 10^8 pixels; a header that
# claims more is damaged or malicious, and decoding would allocate gigabytes.
MAX_PIXELS = 2**28
HALF = 127  # largest alpha of a transparent pixel
WHITE, LEAST_WHITE, LEAST_PURE = 240, 0.01, 0.95  # of a mask: level, and fractions of its pixels
MAX_FILE_BYTES = 8 * MAX_PIXELS  # four channels of 16 bits, not compressed at all

# Deflate expands a byte to at most 1032 bytes (https://zlib.net/zlib_tech.html) and a PNG pixel has at least one bit; a
# JPEG is compressed less, and of WebP only an image of one colour more. A header that claims more would allocate
# gigabytes for a file of a hundred bytes.
PIXELS_PER_BYTE = 8 * 1032


def natural_key(path: Path) -> tuple:
    """Sorting key that orders numbers in names by value (2.png before 10.png) and ignores letter case."""
    parts = re.split(r"(\d{1,300})", path.name.lower())  # int() takes a few thousand at most
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts), path.name


def list_images(folder: Path) -> list[Path]:
    """The image files of `folder` (any letter case, hidden files left out), in natural order.

    Raises ImageError if the folder cannot be listed.
    """
    return entries(folder, lambda entry: entry.suffix.lower() in IMAGE_SUFFIXES and entry.is_file())


def entries(folder: Path, is_wanted: Callable[[Path], bool]) -> list[Path]:
    """The visible entries of a folder with `is_wanted`, in natural order; raises ImageError if it cannot be listed."""
    try:
        wanted = [entry for entry in folder.iterdir() if not entry.name.startswith(".") and is_wanted(entry)]
    except OSError as error:
        raise ImageError(
            f"{folder}: cannot be listed ({error.strerror}); check that it is a readable folder"
        ) from error
    return sorted(wanted, key=natural_key)


def require_images(folder: Path) -> list[Path]:
    """`list_images`; raises ImageError, naming the other files, if there are no images."""
    images = list_images(folder)
    if not images:
        odd = "".join(f" ({note.removeprefix(f'{folder}: ')})" for note in left_out(folder))
        raise ImageError(f"{folder}: contains no .png, .jpg, .jpeg, .webp or .tif photographs{odd}; convert them")
    return images


def photographs_folder(folder: Path) -> Path | None:
    """images/ of a folder, else the images_N/ with the smallest N; None without any."""
    if (folder / "images").is_dir():
        return folder / "images"
    reduced = [entry for entry in folder.iterdir() if re.fullmatch(r"images_\d{1,4}", entry.name) and entry.is_dir()]
    return min(reduced, key=lambda entry: int(entry.name[7:]), default=None)


def left_out(folder: Path) -> tuple[str, ...]:
    """A note on images that `list_images` ignores, in other formats or as broken links; () if there are none.

    Raises ImageError as `list_images`.
    """
    odd = entries(folder, lambda entry: entry.suffix.lower() in UNREAD_SUFFIXES or _is_broken_link(entry))
    names = [entry.name + (" (a broken link)" if _is_broken_link(entry) else "") for entry in odd]
    return (f"{folder}: left out, as only PNG, JPEG, WebP and TIFF are read: {listed(names)}",) if names else ()


def _is_broken_link(entry: Path) -> bool:
    return entry.is_symlink() and not entry.exists()


def read_image(path: Path | str) -> np.ndarray:
    """Decode `path` to uint8 or uint16 [H, W, C], C in {1, 3, 4}, sRGB in RGB(A) order and at the stored depth.

    The format is detected from the content, not the name. A palette is expanded; grey with alpha becomes RGBA. Raises
    ImageError for a file that is missing, unreadable, of another format, damaged, or larger than MAX_PIXELS.
    """
    try:
        encoded = read_regular(path, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions") from error
    if len(encoded) > MAX_FILE_BYTES:
        raise ImageError(f"{path}: is larger than {MAX_FILE_BYTES >> 20} MiB, too large for a photograph")
    require_whole_png(encoded, path)
    _plausible(path, header_size(io.BytesIO(encoded), path), len(encoded))
    profile, bits = read_metadata(encoded).profile, np.frombuffer(encoded, dtype=np.uint8)
    try:
        with read_by_library(), native_stderr_silenced():
            converted = cmyk_as_srgb(encoded, profile)
            if converted is not None:
                return converted
            page = tiff_page(io.BytesIO(encoded)) if encoded[:4] in TIFF_SIGNATURES else None
            if page and page.number:
                pages = cv2.imdecodemulti(bits, cv2.IMREAD_UNCHANGED, range=(page.number, page.number + 1))[1]
                pixels = next(iter(pages), None)
            else:
                pixels = cv2.imdecode(bits, cv2.IMREAD_UNCHANGED)
    except DamagedError as error:
        raise ImageError(f"{path}: cannot be decoded ({error}); save it again") from error
    if pixels is None:
        raise ImageError(f"{path}: {DAMAGED}")
    if pixels.dtype not in (np.uint8, np.uint16):
        raise ImageError(f"{path}: has samples of type {pixels.dtype}; save it with 8 or 16 bits per channel")
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    else:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGBA)
    return to_srgb(straight(pixels, page) if page else pixels, profile)


def image_size(path: Path | str) -> tuple[int, int]:
    """(width, height) in the header of an image; the rest of the file is not checked or decoded.

    Raises ImageError for a file that cannot be read, has another format, or is truncated before its size.
    """
    try:
        with open_input(path) as file:
            return _plausible(path, header_size(file, path), os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise ImageError(f"{path}: cannot be read ({error.strerror}); check the name and its permissions") from error


def _plausible(path: Path | str, size: tuple[int, int], length: int) -> tuple[int, int]:
    """`size` (width, height); raises ImageError if it is impossible for a file of `length` bytes."""
    if min(size) < 1:
        raise ImageError(f"{path}: {DAMAGED}")
    width, height = size
    if width * height > MAX_PIXELS:
        raise ImageError(f"{path}: its header claims {width}x{height} pixels, beyond the limit of {MAX_PIXELS}")
    if width * height > PIXELS_PER_BYTE * length:
        raise ImageError(f"{path}: its header claims {width}x{height} pixels, too many for its {length} bytes")
    return size


def rgb_of(image: np.ndarray) -> np.ndarray:
    """The colours [H, W, 3] of an image of `read_image`: grey is repeated, alpha is dropped."""
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image[..., :3]


def alpha_of(image: np.ndarray) -> np.ndarray | None:
    """The alpha channel of an image as uint8 [H, W]; None if there is none."""
    return eight_bits(image[..., 3]) if image.shape[2] == 4 else None


def mask_of(image: np.ndarray) -> np.ndarray:
    """A mask image of any depth and number of channels as uint8 [H, W], 255 on the object.

    The largest colour channel, limited by the alpha channel: the image over black. Of a cut-out photograph the alpha
    channel alone.
    """
    brightest, alpha = eight_bits(image[..., :3].max(axis=2)), alpha_of(image)
    if alpha is None:
        return brightest
    is_cut_out = is_transparent(image) and not is_black_and_white(brightest[alpha > HALF])
    return alpha if is_cut_out else np.minimum(brightest, alpha)


def is_transparent(image: np.ndarray) -> bool:
    """Whether an image of `read_image` has transparent pixels."""
    alpha = alpha_of(image)
    return alpha is not None and bool((alpha <= HALF).any())


def is_black_and_white(values: np.ndarray) -> bool:
    """Whether grey levels, uint8 of any shape, are those of a mask: black and white, and not black alone."""
    white = np.mean(values >= WHITE) if values.size else 0.0
    return bool(white > LEAST_WHITE and white + np.mean(values <= 255 - WHITE) > LEAST_PURE)


def over_background(rgb: np.ndarray, alpha: np.ndarray, background: float) -> np.ndarray:
    """`rgb` [H, W, 3], unsigned integers, composited over grey `background` in [0, 1] with `alpha` uint8 [H, W]."""
    share = to_float(alpha)[..., None]
    most = np.float32(np.iinfo(rgb.dtype).max)
    return np.rint(rgb * share + (1.0 - share) * (background * most)).astype(rgb.dtype)


def write_image(path: Path | str, rgb: np.ndarray) -> None:
    """Write uint8 `rgb` [H, W, 3] or grey [H, W] to `path` atomically, as PNG or JPEG by its suffix.

    Raises ImageError if the file cannot be written (the old file remains) and ValueError for any other array.
    """
    target = Path(path)
    if rgb.dtype != np.uint8 or not (rgb.ndim == 2 or (rgb.ndim == 3 and rgb.shape[2] == 3)):
        raise ValueError(f"write_image takes uint8 [H, W, 3] or [H, W], not {rgb.dtype} {rgb.shape}")
    if target.suffix.lower() not in WRITTEN_SUFFIXES:
        raise ImageError(f"{target}: name it with one of {', '.join(WRITTEN_SUFFIXES)}")
    encoded = cv2.imencode(target.suffix.lower(), rgb if rgb.ndim == 2 else cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))[1]
    try:
        write_atomically(target, encoded.tobytes())
    except OSError as error:
        raise ImageError(
            f"{target}: cannot be written ({error.strerror}); check the folder and the free space"
        ) from error
