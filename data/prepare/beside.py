"""Files among photographs that are none of their own: masks, and further files of the same shot."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from data.errors import DamagedError, UserError, listed, read_by_library
from data.io.files import open_input
from data.io.headers import TIFF_SIGNATURES, tiff_page
from data.io.images import alpha_of, image_size, is_black_and_white, is_transparent, natural_key, read_image, rgb_of
from data.io.named_files import mask_files, mask_stems, masks_folder
from data.parsed_scene import MASK_HALF
from data.pixels import eight_bits, size_of, size_within
from data.prepare.frames import position_of
from data.prepare.masks import LEAST_COVER, MOST_COVER
from data.prepare.sources import HEIC_SUFFIXES, MIN_IMAGES, find_images, hdr_note, positions, read_source_image

PREFERRED = (".jpg", ".jpeg", *HEIC_SUFFIXES, ".webp", ".tif", ".tiff", ".png")  # of files of equal size
COLOURLESS = 16  # levels between the channels of a mask, which JPEG's compression causes
# Files of a shot are compared by their fine structure: longer side, Gaussian's standard deviation in pixels, least
# correlation. Neighbouring photographs of fox, DTU, lego and others reach 0.5, copies and previews 0.9 to 1.
SMALL_SIDE, COARSE, SAME_SHOT = 128, 1.5, 0.8
END_BYTES = 1024  # in which files of one format with the same pixels are equal, as metadata precede them
IMAGE_FOLDERS = ("images", "image")
EDITED = re.compile(r"^img_e(?=[0-9])")
LEAST_SEEN = 2.0  # levels: standard deviation of what transparent pixels hide, if they hide anything


@dataclass(frozen=True)
class Photographs:
    """The images of a folder, or of its subfolders with one position of the object each, or a video."""

    folder: Path  # or that of the video
    paths: list[Path]
    masks: dict[Path, Path]  # of photographs, named as such
    notes: tuple[str, ...] = ()
    renamed: Mapping[Path, str] = field(default_factory=dict)  # photographs of a scene -> their names there

    @property
    def positions(self) -> list[str]:
        """The subfolders with photographs of one position of the object each; [] if it did not move."""
        parts = dict.fromkeys(map(position_of, self.names))
        return list(parts) if len(parts) > 1 else []

    @property
    def names(self) -> list[str]:
        """The paths relative to the folder."""
        return [path.relative_to(self.folder).as_posix() for path in self.paths]

    @property
    def sources(self) -> list[str]:
        """The names in the scene."""
        return [self.renamed.get(path, name) for path, name in zip(self.paths, self.names, strict=True)]


def find_photographs(source: Path) -> Photographs:
    """The photographs of the folder `source` without masks and twins, or the video; raises UserError."""
    if len(folders := positions(source)) > 1:
        return _of_positions(source, [find_photographs(folder) for folder in folders])
    images = find_images(source)
    if images == [source]:
        return Photographs(source.parent, images, {}, tuple(hdr_note(source)))
    by_stem = {path.stem.lower(): path for path in images}
    named = {path: [by_stem[stem] for stem in mask_stems(path)[:-1] if stem in by_stem] for path in images}
    masks = {path: own[0] for path, own in named.items() if own}
    rest, shots, twins = [path for path in images if path not in masks.values()], list[Path](), list[Path]()
    shot = {path: _shot(path, by_stem) for path in rest}
    for _, same in groupby(sorted(rest, key=shot.__getitem__), key=shot.__getitem__):
        files = sorted(same, key=_preference)
        drawn = [path for path in files if len(files) > 1 and _is_mask(path)]
        if drawn and drawn != files:
            files = [path for path in files if path not in drawn]
            masks[files[0]] = drawn[0]
        shots.append(files[0])
        twins += files[1:]
    repeated = _repeated(sorted(shots, key=natural_key))
    for path, first in repeated.items():
        if mask := masks.pop(path, None):
            masks.setdefault(first, mask)
    shots, twins = [path for path in shots if path not in repeated], [*twins, *repeated]
    if len(shots) < MIN_IMAGES:
        raise UserError(
            f"--images {source}: holds {len(shots)} photographs besides masks and further files of the same shots; at "
            f"least {MIN_IMAGES} are needed"
        )
    note = f"{len(twins)} further files of the same shots are left out: {listed([path.name for path in twins])}"
    return Photographs(source, sorted(shots, key=natural_key), masks, (note,) if twins else ())


def _of_positions(source: Path, parts: Sequence[Photographs]) -> Photographs:
    """The photographs of an object in several positions, each in a subfolder, with masks from folders of masks there
    or beside them.
    """
    paths = [path for part in parts for path in part.paths]
    if repeated := _repeated(paths):
        raise UserError(
            f"--images {source}: {listed([path.relative_to(source).as_posix() for path in repeated])} are photographs "
            "of another subfolder, too; each shows one position of the object: remove them from one"
        )
    whole = Photographs(source, paths, {}, tuple(note for part in parts for note in part.notes))
    masks = {path: mask for part in parts for path, mask in part.masks.items()}
    for part in (whole, *parts):
        if home := masks_folder(part.folder):
            own = zip(part.paths, mask_files(home, part.names), strict=True)
            masks |= {path: mask for path, mask in own if mask}
    return replace(whole, masks=masks)


def _shot(path: Path, by_stem: Mapping[str, Path]) -> str:
    """The stem of an image or, of its mask or copy such as mask_IMG_1, "IMG_1 (2)" or IMG_1-preview, that of it.

    by_stem: all images. A copy shows the same; iPhones name edited ones IMG_E1.
    """
    own = path.stem.lower()
    name = EDITED.sub("img_", own)
    within = (stem for stem in by_stem if stem != own and stem in name)
    parts = [stem for stem in within if re.search(rf"(?<![0-9a-z]){re.escape(stem)}(?![0-9])", name)]
    if parts and _is_mask(path):
        return max(parts, key=len)
    return next((stem for stem in sorted(parts, key=len) if _likeness(path, by_stem[stem]) >= SAME_SHOT), own)


def _likeness(path: Path, other: Path) -> float:
    """The correlation of the fine structure of two images, at a small size."""
    images = [cv2.cvtColor(eight_bits(rgb_of(read_source_image(one))), cv2.COLOR_RGB2GRAY) for one in (path, other)]
    size = size_within(min(map(size_of, images)), SMALL_SIDE)[0]
    small = [cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.float32) for image in images]
    fine = [(image - cv2.GaussianBlur(image, (0, 0), COARSE)).ravel() for image in small]
    with np.errstate(invalid="ignore"):  # of one colour: NaN
        return float(np.corrcoef(fine[0], fine[1])[0, 1])


def _repeated(paths: Sequence[Path]) -> dict[Path, Path]:
    """The images with the pixels of an earlier one, which is the value, whatever their names and metadata.

    Only images of one size are decoded, that end with the same bytes or have different formats.
    """
    looks = {path: (_preference(path)[0], path.suffix.lower(), _last_bytes(path)) for path in paths}
    first, repeated = dict[bytes, Path](), dict[Path, Path]()
    for path, (size, kind, end) in looks.items():
        if sum(size == other[0] and (kind != other[1] or end == other[2]) for other in looks.values()) > 1:
            pixels = read_source_image(path)
            key = hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).digest()
            if first.setdefault(key, path) != path:
                repeated[path] = first[key]
    return repeated


def _last_bytes(path: Path) -> bytes:
    """The end of a file, without reading the rest: a capture has gigabytes."""
    with open_input(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - END_BYTES))
        return file.read()


def _preference(path: Path) -> tuple[int, int, int, str]:
    """The largest file of a shot first; the header of HEIC is not read."""
    suffix = path.suffix.lower()
    width, height = (0, 0) if suffix in HEIC_SUFFIXES else image_size(path)
    return -width * height, PREFERRED.index(suffix), len(path.name), path.name


def _is_mask(path: Path) -> bool:
    """Whether one of several files of a shot is black and white, or cut out."""
    if path.suffix.lower() in HEIC_SUFFIXES:
        return False
    pixels = read_image(path)
    rgb = eight_bits(rgb_of(pixels)).astype(np.int16)
    is_grey = np.mean(np.ptp(rgb, axis=2) <= COLOURLESS) > 0.99
    return is_transparent(pixels) or bool(is_grey and is_black_and_white(rgb[..., 0]))


def masks_beside(source: Path, photos: Photographs) -> tuple[str, tuple[str, ...]]:
    """The folder of masks of the photographs of the folder `source` without --masks, "" for none, and a note on them.

    They are beside the photographs, in a folder masks/ or mask/ there or beside images/, or alpha channels with
    transparent pixels.
    """
    count, names, folder = len(photos.paths), photos.names, folder_beside(source)
    if photos.masks:
        what = f"{listed([mask.name for mask in photos.masks.values()])}: masks of {len(photos.masks)} photographs"
        lack = [name for name, path in zip(names, photos.paths, strict=True) if path not in photos.masks]
        return ("", (f"{what}, not used, as {listed(lack)} have none",)) if lack else (str(source), (f"{what}, used",))
    if folder is not None:
        lack = [name for name, mask in zip(names, mask_files(folder, names), strict=True) if mask is None]
        if lack:
            return "", (f"{folder}: its masks are not used, as {listed(lack)} have none",)
        return str(folder), (f"{folder}: its masks are used",)
    n_cut = sum(map(is_cut_out, photos.paths))
    what = f"alpha channels of {n_cut} of {count} photographs have transparent pixels"
    if 2 * n_cut > count and all(map(_has_alpha, photos.paths)):
        return str(source), (f"{what}: used as masks",)
    return "", ((f"{what}: not used as masks",) if n_cut else ())


def folder_beside(source: Path) -> Path | None:
    """The folder masks/ or mask/ of the photographs in the folder `source`, there or beside images/; None for none."""
    own, is_inner = masks_folder(source), source.absolute().name.lower() in IMAGE_FOLDERS
    return masks_folder(source.absolute().parent) if own is None and is_inner else own


def masks_of(source: Path, photos: Photographs) -> list[Path]:
    """The mask file of each photograph in the folder `source` itself, the photograph if its alpha channel is the mask.

    Raises UserError if one has none.
    """
    lack = [path for path in photos.paths if path not in photos.masks and not _has_alpha(path)]
    if lack:
        raise UserError(
            f"--masks {source}: {len(lack)} of {len(photos.paths)} photographs have no mask, the first is "
            f"{lack[0].name}: it has no alpha channel, and there is no {lack[0].stem}_mask.png"
        )
    return [photos.masks.get(path, path) for path in photos.paths]


def is_cut_out(path: Path) -> bool:
    """Whether the alpha channel of a photograph may be its mask; only an image with one is decoded."""
    alpha = alpha_of(read_image(path)) if _has_alpha(path) else None
    return alpha is not None and bool(LEAST_COVER <= np.mean(alpha > MASK_HALF) <= MOST_COVER)


def _has_alpha(path: Path) -> bool:
    """Whether the header of an image file has an alpha channel or a transparent colour."""
    try:
        with read_by_library(), open_input(path) as file:
            is_tiff = file.read(4) in TIFF_SIGNATURES
            file.seek(0)
            if is_tiff:
                return tiff_page(file).samples == 4
            with Image.open(file, formats=("PNG", "WEBP")) as image:
                return image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    except DamagedError:
        return False


def hides_nothing(paths: Sequence[Path]) -> bool:
    """Whether the transparent pixels of most photographs have one colour, so that what they showed is lost."""
    votes = []
    for path in paths:
        pixels = read_image(path)
        alpha = alpha_of(pixels)
        hidden = eight_bits(rgb_of(pixels))[np.zeros(pixels.shape[:2], bool) if alpha is None else alpha == 0]
        votes.append(len(hidden) > 0 and hidden.std(axis=0).max() < LEAST_SEEN)
    return bool(np.mean(votes) > 0.5)
