"""Photographs and videos to prepare a scene from: which there are, and the frames of a video."""

from __future__ import annotations

import importlib
import importlib.util
import mmap
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from data.errors import DamagedError, UserError, listed, read_by_library
from data.io.colors import profile_words, to_srgb
from data.io.files import open_input, read_regular, similar_names
from data.io.headers import ImageError
from data.io.images import IMAGE_SUFFIXES, MAX_PIXELS, UNREAD_SUFFIXES, entries, image_size, read_image
from data.io.metadata import read_exif, read_metadata
from data.io.named_files import MASK_FOLDERS
from data.io.streams import native_stderr_silenced
from data.pixels import size_of

# The minimum for structure from motion; a good surface needs ten times as many.
MIN_IMAGES = 3

# The format of many phones, read by an optional package.
HEIC_SUFFIXES = (".heic", ".heif")
HEIC_PACKAGE = "pillow_heif"
HEIC_ADVICE = "run `pip install -r requirements-heic.txt` to read them"

# Image formats that are not read; notes name such files, so that a camera's folder is not reported as empty.
OTHER_SUFFIXES = tuple(suffix for suffix in UNREAD_SUFFIXES if suffix not in HEIC_SUFFIXES)
# File signatures of video containers: (offset, bytes) that must all match. Other files are not passed to the video
# library, which would open the files named in playlists, scripts and name patterns.
CONTAINERS: tuple[tuple[tuple[int, bytes], ...], ...] = (
    *(((4, kind),) for kind in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")),  # MP4, MOV
    ((0, b"RIFF"), (8, b"AVI ")),
    ((0, b"\x1aE\xdf\xa3"),),  # Matroska, WebM
    ((0, b"\x00\x00\x01\xba"),),  # MPEG program stream
    ((0, b"G"), (188, b"G"), (376, b"G")),  # MPEG transport stream
    ((4, b"G"), (196, b"G"), (388, b"G")),  # the same with time codes: AVCHD
    ((0, b"FLV"),),
    ((0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"),),  # ASF, WMV
    ((0, b"OggS"),),
)
HEAD_BYTES = 512
DEEPEST = 3  # levels of subfolders in which photographs are noticed
# Transfer characteristics (ITU-T H.273), in the box "colr" of MP4 and MOV after the primaries, in Matroska's element.
TRANSFERS = {16: "PQ", 18: "HLG"}
COLOURS_OF_MP4 = re.compile(rb"colrncl[cx]..(..)", re.DOTALL)
COLOURS_OF_MATROSKA, MATROSKA_BYTES = re.compile(rb"\x55\xba\x81(.)", re.DOTALL), 1 << 16

SHARPNESS_WIDTH = 640  # frames are compared at this width, which suppresses pixel noise
Tick = Callable[[], None]


def find_images(source: Path) -> list[Path]:
    """The images of the folder `source`, or the video `source`; raises UserError for anything else."""
    if os.path.isdir(source):  # Path.is_dir raises on a long name
        images = _readable(source)
        if not images:
            raise UserError(f"--images {source}: {_why_empty(source)}")
        if len(images) < MIN_IMAGES:
            beside = "".join(f"; {note}" for note in left_out(source))
            raise UserError(
                f"--images {source}: holds {len(images)} photographs; at least {MIN_IMAGES} are needed, "
                f"and 30 to 100 from all around make a good surface{beside}"
            )
        inner = {name: len(_readable(source / name)) for name in _inner_folders(source, 1)}
        if sum(inner.values()) > len(images):
            raise UserError(
                f"--images {source}: holds {len(images)} photographs, and its subfolders {listed(list(inner))} hold "
                f"{sum(inner.values())}; move those above them into a subfolder, too (each is one position of the "
                "object), or all into one folder"
            )
        return images
    if not os.path.isfile(source):
        raise UserError(f"--images {source}: no such folder or video{similar_names(source)}")
    if not is_video(source):
        raise UserError(
            f"--images {source}: is not a video that OpenCV can decode; give an MP4 or a folder of photographs"
        )
    return [source]


def positions(source: Path) -> list[Path]:
    """The subfolders with images of a folder that has none itself: each is of one position of the object."""
    is_split = os.path.isdir(source) and not _readable(source)
    return [source / name for name in _inner_folders(source, 1)] if is_split else []


def _readable(folder: Path) -> list[Path]:
    """The images of a folder that can be read."""
    suffixes = (*IMAGE_SUFFIXES, *HEIC_SUFFIXES) if has_heic() else IMAGE_SUFFIXES
    return entries(folder, lambda path: path.suffix.lower() in suffixes and path.is_file())


def left_out(folder: Path, given: Collection[Path] = (), depth: int = DEEPEST) -> list[str]:
    """A note for each kind of entry that may be an image and is not used.

    given: subfolders that are; depth: of further ones.
    """
    files = _files(folder)
    used = {path.stem.lower() for path in files if path.suffix.lower() in IMAGE_SUFFIXES}
    unread = [path for path in files if path.suffix.lower() in (OTHER_SUFFIXES if has_heic() else UNREAD_SUFFIXES)]
    same = [path.name for path in unread if path.stem.lower() in used]
    heic = [path.name for path in unread if path.suffix.lower() in HEIC_SUFFIXES and path.name not in same]
    others = [path.name for path in unread if path.name not in (*same, *heic)]
    broken = [path.name for path in _entries(folder) if _is_image_name(path) and path not in files]
    inner = [name for name in _inner_folders(folder, depth) if folder / name not in given]
    notes = {
        f"{listed(same)}: left out, of the same shots as other files": same,
        f"{listed(heic)}: HEIC, left out; {HEIC_ADVICE}, or save them as JPEG": heic,
        f"{listed(others)}: left out, neither PNG, JPEG, WebP nor TIFF; save them as JPEG": others,
        f"{listed(broken)}: left out, a broken link or not a file": broken,
        f"{listed(inner)}: left out, photographs in subfolders; move them to the others": inner,
    }
    return [note for note, names in notes.items() if names]


def _why_empty(folder: Path) -> str:
    """Why no image can be read, as the end of a sentence."""
    if inner := _inner_folders(folder):
        return f"its photographs are in a subfolder ({listed(inner)}); give that"
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


def _inner_folders(folder: Path, depth: int = DEEPEST) -> list[str]:
    """The subfolders with images, but masks, down to a depth: paths relative to the folder."""
    suffixes = (*IMAGE_SUFFIXES, *HEIC_SUFFIXES, *OTHER_SUFFIXES)
    found = []
    for path in _entries(folder) if depth else ():
        if os.path.isdir(path) and path.name.lower() not in MASK_FOLDERS:
            found += [path.name] * any(file.suffix.lower() in suffixes for file in _files(path))
            found += [f"{path.name}/{name}" for name in _inner_folders(path, depth - 1)]
    return found


def has_heic() -> bool:
    """Whether the package that reads HEIC is installed."""
    return importlib.util.find_spec(HEIC_PACKAGE) is not None


def read_source_image(path: Path) -> np.ndarray:
    """`images.read_image`; HEIC as upright sRGB uint8 [H, W, 3]. Raises ImageError for files that cannot be decoded."""
    return _read_heic(path) if path.suffix.lower() in HEIC_SUFFIXES else read_image(path)


def profile_note(path: Path) -> str:
    """`profile_words` of a photograph."""
    if path.suffix.lower() in HEIC_SUFFIXES:
        importlib.import_module(HEIC_PACKAGE).register_heif_opener()
    return profile_words(read_metadata(path).profile)


def upright_size(path: Path) -> tuple[int, int]:
    """(width, height) of the upright image; raises ImageError for files that cannot be read."""
    if path.suffix.lower() in HEIC_SUFFIXES:
        return size_of(_read_heic(path))
    size = image_size(path)
    return size[::-1] if read_exif(path)[0] >= 5 else size  # stored rotated by 90 degrees


def _read_heic(path: Path) -> np.ndarray:
    try:
        with read_by_library(), open_input(path) as file:
            importlib.import_module(HEIC_PACKAGE).register_heif_opener()
            with Image.open(file, formats=("HEIF",)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageError(f"{path}: claims {image.width}x{image.height} pixels, beyond {MAX_PIXELS}")
                return to_srgb(np.asarray(image.convert("RGB")), image.info.get("icc_profile") or b"")
    except DamagedError as error:
        raise ImageError(f"{path}: cannot be decoded: the file is truncated or damaged; save it as JPEG") from error


def notes_of(source: Path, images: Sequence[Path]) -> list[str]:
    """Notes on files beside the images that are not used."""
    used = [*dict.fromkeys(path.parent for path in images if path != source)]
    if not used or source in used:
        return [note for folder in used for note in left_out(folder)]
    return [*left_out(source, used), *(note for folder in used for note in left_out(folder, depth=0))]


def hdr_note(video: Path) -> list[str]:
    """A note on a video whose colours are HDR, which OpenCV does not convert; none on others."""
    with open_input(video) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        transfer = COLOURS_OF_MP4.search(content) or COLOURS_OF_MATROSKA.search(content[:MATROSKA_BYTES])
        name = TRANSFERS.get(transfer.group(1)[-1]) if transfer else None
    words = "is HDR ({}), which is not converted, so that colours are pale: export it as SDR, or record without HDR"
    return [f"{video.name}: {words.format(name)}"] if name else []


def sharpness(frame: np.ndarray) -> float:
    """Variance of the Laplacian of a frame [H, W, 3] uint8 (Pech-Pacheco et al., ICPR 2000); low if blurred."""
    grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
    if grey.shape[1] > SHARPNESS_WIDTH:
        height = max(1, round(grey.shape[0] * SHARPNESS_WIDTH / grey.shape[1]))
        grey = cv2.resize(grey, (SHARPNESS_WIDTH, height), interpolation=cv2.INTER_AREA)
    return float(cv2.Laplacian(grey, cv2.CV_64F).var())


def choose_frames(path: Path, count: int, tick: Tick) -> list[int]:
    """The ascending indices of the sharpest frame in each of `count` equal intervals, of all if there are not more.

    `tick` is called for each decoded frame. Raises UserError for a file that is not a video.
    """
    values = []
    for frame in frames(path):
        values.append(sharpness(frame))
        tick()
    if not values:
        raise UserError(f"{path}: no frame can be decoded; give a video, such as MP4, or a folder of photographs")
    if len(values) <= count:
        return list(range(len(values)))
    edges = np.linspace(0, len(values), count + 1).round().astype(int)
    return [int(a + np.argmax(values[a:b])) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def read_frames(path: Path, wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """(index, RGB uint8 [H, W, 3]) of the `wanted` ascending indices."""
    remaining = iter(wanted)
    following = next(remaining, None)
    for number, frame in enumerate(frames(path)):
        if number == following:
            yield number, cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
            following = next(remaining, None)
        if following is None:
            return


def is_video(path: Path) -> bool:
    """Whether the file is a video container with a decodable frame; raises OSError if it cannot be read."""
    head = read_regular(path, HEAD_BYTES)
    is_container = any(all(head.startswith(part, at) for at, part in kind) for kind in CONTAINERS)
    return is_container and next(frames(path), None) is not None


def frame_count(path: Path) -> int | None:
    """The number of frames in the file's header; None if it is missing or implausible."""
    video = _opened(path)
    claimed = video.get(cv2.CAP_PROP_FRAME_COUNT)
    video.release()
    return int(claimed) if 0 < claimed < 1e9 else None


def frames(path: Path) -> Iterator[np.ndarray]:
    """Every upright frame of a local file, BGR uint8 [H, W, 3]; none of other files. Raises UserError on damage."""
    video = _opened(path)
    try:
        while True:
            with native_stderr_silenced():
                is_read, frame = video.read()
            if not is_read or frame is None:
                return
            yield frame
    except cv2.error as error:
        raise UserError(f"{path}: cannot be decoded as a video ({error.err}); convert it to MP4") from error
    finally:
        video.release()


def _opened(path: Path) -> cv2.VideoCapture:
    """OpenCV's reader for a local file.

    The path is made absolute: a relative path such as `http:/a.mp4` would be opened over the network.
    """
    with native_stderr_silenced():
        video = cv2.VideoCapture(os.path.abspath(path), cv2.CAP_FFMPEG)
        video.set(cv2.CAP_PROP_ORIENTATION_AUTO, 1)  # telephones store all frames in one direction, and how they turn
        return video
