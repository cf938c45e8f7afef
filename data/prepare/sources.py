"""The inputs of `--images`: images or a video, and notes on files that are not used."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from data.errors import DAMAGE, UserError, listed
from data.io.images import IMAGE_SUFFIXES, MAX_PIXELS, UNREAD_SUFFIXES, ImageError, entries, read_image
from data.io.nearby import folders_beside
from data.prepare.video import is_video

# The minimum for structure from motion; a good surface needs ten times as many.
MIN_IMAGES = 3

# The format of many phones, read by an optional package.
HEIC_SUFFIXES = (".heic", ".heif")
HEIC_PACKAGE = "pillow_heif"
HEIC_ADVICE = "run `pip install -r requirements-heic.txt` to read them"

# Image formats that are not read; notes name such files, so that a camera's folder is not reported as empty.
OTHER_SUFFIXES = tuple(suffix for suffix in UNREAD_SUFFIXES if suffix not in HEIC_SUFFIXES)


def find_images(source: Path) -> list[Path]:
    """The images of the folder `source`, or the video `source`; raises UserError for anything else."""
    if os.path.isdir(source):  # Path.is_dir raises on a long name
        readable = (*IMAGE_SUFFIXES, *HEIC_SUFFIXES) if has_heic() else IMAGE_SUFFIXES
        images = entries(source, lambda path: path.suffix.lower() in readable and path.is_file())
        if not images:
            raise UserError(f"--images {source}: {_why_empty(source)}")
        if len(images) < MIN_IMAGES:
            beside = "".join(f"; {note}" for note in left_out(source))
            raise UserError(
                f"--images {source}: holds {len(images)} photographs; at least {MIN_IMAGES} are needed, "
                f"and 30 to 100 from all around make a good surface{beside}"
            )
        return images
    if not os.path.isfile(source):
        raise UserError(f"--images {source}: no such folder or video{folders_beside(source)}")
    if not is_video(source):
        raise UserError(
            f"--images {source}: is not a video that OpenCV can decode; give an MP4 or a folder of photographs"
        )
    return [source]


def left_out(folder: Path) -> list[str]:
    """A note for each kind of entry that may be an image and is not used."""
    files = _files(folder)
    heic = [] if has_heic() else [path.name for path in files if path.suffix.lower() in HEIC_SUFFIXES]
    others = [path.name for path in files if path.suffix.lower() in OTHER_SUFFIXES]
    broken = [path.name for path in _entries(folder) if _is_image_name(path) and path not in files]
    inner = _inner_folders(folder)
    notes = {
        f"{listed(heic)}: HEIC, left out; {HEIC_ADVICE}, or save them as JPEG": heic,
        f"{listed(others)}: left out, neither PNG, JPEG, WebP nor TIFF; save them as JPEG": others,
        f"{listed(broken)}: left out, a broken link or not a file": broken,
        f"{listed(inner)}: left out, photographs in subfolders; move them to the others": inner,
    }
    return [note for note, names in notes.items() if names]


def _why_empty(folder: Path) -> str:
    """Why no image can be read, as the end of a sentence."""
    if inner := _inner_folders(folder):
        return f"its photographs are in subfolders ({listed(inner)}); give one of them, or move them together"
    notes = left_out(folder)
    if notes:
        return f"holds no PNG, JPEG, WebP or TIFF; {'; '.join(notes)}"
    return "holds no .png, .jpg, .jpeg, .webp or .tif photographs"


def _entries(folder: Path) -> list[Path]:
    """The visible entries; [] if the folder cannot be listed, which is reported elsewhere."""
    try:
        return entries(folder, lambda path: True)
    except ImageError:
        return []


def _files(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if os.path.isfile(path)]


def _is_image_name(path: Path) -> bool:
    return path.suffix.lower() in (*IMAGE_SUFFIXES, *HEIC_SUFFIXES) and not os.path.isdir(path)


def _inner_folders(folder: Path) -> list[str]:
    """The names of subfolders with images."""
    suffixes = (*IMAGE_SUFFIXES, *HEIC_SUFFIXES, *OTHER_SUFFIXES)
    inner = [path for path in _entries(folder) if os.path.isdir(path)]
    return [path.name for path in inner if any(file.suffix.lower() in suffixes for file in _files(path))]


def has_heic() -> bool:
    """Whether the package that reads HEIC is installed."""
    return importlib.util.find_spec(HEIC_PACKAGE) is not None


def read_source_image(path: Path) -> np.ndarray:
    """`images.read_image`; HEIC as upright uint8 [H, W, 3]. Raises ImageError for files that cannot be decoded."""
    return _read_heic(path) if path.suffix.lower() in HEIC_SUFFIXES else read_image(path)


def _read_heic(path: Path) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(HEIC_PACKAGE).register_heif_opener()
            with Image.open(path, formats=("HEIF",)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageError(f"{path}: claims {image.width}x{image.height} pixels, beyond {MAX_PIXELS}")
                return np.asarray(image.convert("RGB"))
    except (*DAMAGE, OSError, ImportError, Image.DecompressionBombError) as error:
        raise ImageError(f"{path}: cannot be decoded: the file is truncated or damaged; save it as JPEG") from error


def notes_of(source: Path, images: Sequence[Path]) -> list[str]:
    """Notes on files beside the images that are not used."""
    return left_out(source) if list(images) != [source] else []
