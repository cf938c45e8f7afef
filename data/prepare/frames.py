"""Copies the source images or video frames, upright and reduced, to the work folder."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from data.errors import UserError, listed
from data.io.colors import levels_of, range_words, small_range, stretched
from data.io.files import read_regular, write_result
from data.io.headers import ImageError
from data.io.images import UNREAD_SUFFIXES, WRITTEN_SUFFIXES, image_size, rgb_of, write_image
from data.io.metadata import WHOLE_SIZE, focal_pixels, read_exif, read_metadata, upright
from data.parsed_scene import ParsedScene, PosedImage
from data.pixels import Levels, eight_bits, size_of, size_within
from data.prepare.sources import MIN_IMAGES, choose_frames, frame_count, profile_note, read_frames, read_source_image
from data.prepare.steps import Bar

# Longer sides are reduced to this. Features of larger images do not match better (COLMAP itself extracts them at 3200
# pixels), and the images of a scene are kept in memory during training.
MAX_SIDE = 2048
SAME_ASPECT = 0.01  # relative difference of aspect ratios that rounding and reduction cause
MIN_CROPPED = 2  # photographs that each have a size of their own from which on these look cropped
# Views of 90 degrees, every 45 degrees around: neighbouring views share half of their content, as structure from motion
# needs. Elevations beyond +-45 degrees, which mostly show the sky and the tripod, are not used.
YAWS = tuple(range(0, 360, 45))
FIELD_OF_VIEW = 90.0  # degrees
# "Photo Sphere XMP Metadata" (developers.google.com/streetview/spherical-metadata), as attribute or element
TAG = re.compile(rb"GPano:ProjectionType\W{1,4}equirectangular")
VIEW_NAME = re.compile(r"[0-9]{4,}_[0-9]{3}[.]png")


@dataclass(frozen=True)
class Frame:
    """An image of the work folder."""

    name: str  # of its file: a number, since COLMAP's lists are split at blanks
    source: str  # the source file, or the frame of the video, for messages
    width: int
    height: int
    focal: float | None  # pixels, from EXIF; None if unknown
    remarks: Sequence[str] = ()  # how the photograph was read, and what is wrong with it
    is_cropped: bool = False  # by EXIF: its principal point is its own
    reduction: float = 1.0  # of its size, relative to the photograph's
    lens: str = ""  # COLMAP's camera model and its parameters, if the lens is known and constant


@dataclass(frozen=True)
class Group:
    """Frames of one camera."""

    names: tuple[str, ...]
    size: tuple[int, int]  # (width, height)
    focal: float | None  # pixels
    lens: str = ""  # as of `Frame`


def position_of(source: str) -> str:
    """The subfolder of a photograph, "" without one: all photographs in one show the object in the same position."""
    return source.rpartition("/")[0]


def copy_images(
    images: Sequence[Path], folder: Path, bar: Bar, is_panorama: bool = False, numbers: Sequence[int] | None = None
) -> list[dict[str, object]]:
    """Copy each image into `folder`: unchanged if possible, else converted to upright 8-bit RGB PNG.

    `numbers`: those in the names of the copies; None: 0, 1, ...

    Panoramas, by their tag or all of them, are cut into views. Returns the `Frame`s as dictionaries. Raises ImageError
    for a file that cannot be decoded, UserError for a copy that cannot be written and for an incomplete panorama.
    """
    folder.mkdir(parents=True, exist_ok=True)
    frames, deep = list[list[Frame]](), dict[int, Levels]()
    names = range(len(images)) if numbers is None else numbers
    for number, path in enumerate(images):
        pixels = read_source_image(path)
        if pixels.dtype == np.uint16:
            deep[number] = levels_of(pixels)
        frames.append(_copied(pixels, path, folder, names[number], is_panorama))
        bar.update()
    if levels := small_range(deep.values()):
        for number in deep:
            pixels = stretched(read_source_image(images[number]), levels)
            again = _copied(pixels, images[number], folder, names[number], is_panorama)
            frames[number] = [replace(frame, remarks=(*frame.remarks, range_words(levels))) for frame in again]
    return [asdict(frame) for frame in itertools.chain.from_iterable(frames)]


def _copied(pixels: np.ndarray, path: Path, folder: Path, number: int, is_panorama: bool) -> list[Frame]:
    """Copy an image, whose pixels [H, W, C] are those of `read_source_image`: its frames."""
    orientation, focal = read_exif(path)
    profile = profile_note(path)
    is_whole = is_panorama or is_tagged(path)
    kept = pixels.dtype == np.uint8 and pixels.shape[2] != 4 and max(pixels.shape[:2]) <= MAX_SIDE and not profile
    kept = kept and path.suffix.lower() in WRITTEN_SUFFIXES  # COLMAP reads them
    if kept and orientation == 1 and not is_whole:
        written = [Frame(f"{number:04d}{path.suffix.lower()}", path.name, *size_of(pixels), None)]
        write_result(folder / written[0].name, read_regular(path))
    else:
        written = _written(upright(rgb_of(eight_bits(pixels)), orientation), folder, number, path.name, is_whole)
    remarks = (profile,) if profile else ()
    if is_whole:
        return [replace(frame, remarks=remarks) for frame in written]
    size = written[0].width, written[0].height
    uncropped = _uncropped_size(path, size_of(pixels))
    reduced = max(size) / max(size_of(pixels))
    if focal:
        focal = focal_pixels(focal, size) if uncropped is None else reduced * focal_pixels(focal, uncropped)
    return [replace(written[0], focal=focal, remarks=remarks, is_cropped=uncropped is not None, reduction=reduced)]


def copy_video(video: Path, count: int, folder: Path, bar: Bar, is_panorama: bool = False) -> list[dict[str, object]]:
    """Write the sharpest frame of each of `count` intervals into `folder`; returns the `Frame`s as dictionaries.

    The frames of a 360-degree video are cut into views.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bar.reset(total=frame_count(video))
    wanted = choose_frames(video, count, bar.update)
    if len(wanted) < MIN_IMAGES:
        raise UserError(f"--images {video}: has {len(wanted)} frames; at least {MIN_IMAGES} are needed")
    frames = []
    for position, (number, frame) in enumerate(read_frames(video, wanted)):
        frames += _written(frame, folder, position, f"frame {number}", is_panorama)
    return [asdict(frame) for frame in frames]


def _written(pixels: np.ndarray, folder: Path, number: int, source: str, is_panorama: bool) -> list[Frame]:
    """The image as a PNG in `folder`, reduced to MAX_SIDE, or the perspective views of a panorama [H, 2 H, 3]."""
    if not is_panorama:
        small = np.ascontiguousarray(scaled_down(pixels))
        write_image(folder / f"{number:04d}.png", small)
        return [Frame(f"{number:04d}.png", source, *size_of(small), None)]
    require_whole(source, pixels)
    frames = []
    for yaw, view, focal in cut(pixels, MAX_SIDE):
        frames.append(Frame(view_name(number, yaw), f"{source} ({yaw} degrees)", *size_of(view), focal))
        write_image(folder / frames[-1].name, view)
    return frames


def _uncropped_size(path: Path, size: tuple[int, int]) -> tuple[int, int] | None:
    """The size in EXIF of the photograph that was cropped to `size` (width, height); None if it shows no crop.

    Both have the longer side first: some programs turn photographs and keep EXIF.
    """
    block = read_metadata(path).exif
    short, long = sorted(float(block.get(tag, (0,))[0]) for tag in WHOLE_SIZE)
    is_cropped = short > 0 and abs(min(size) * long / (max(size) * short) - 1) > SAME_ASPECT
    return (round(long), round(short)) if is_cropped else None


def groups(frames: Iterable[Frame]) -> list[Group]:
    """The frames grouped by camera: frames of equal size and focal length share one, a cropped one has its own."""
    by_camera: dict[tuple[int, int, float | None, str, str], list[str]] = {}
    for frame in frames:
        key = (
            frame.width,
            frame.height,
            frame.focal and round(frame.focal, 1),
            frame.name * frame.is_cropped,
            frame.lens,
        )
        by_camera.setdefault(key, []).append(frame.name)
    return [Group(tuple(names), (key[0], key[1]), key[2] or None, key[4]) for key, names in by_camera.items()]


def describe(cameras: Sequence[Group]) -> str:
    """One line about the cameras, for the log."""
    count = sum(len(camera.names) for camera in cameras)
    if len(cameras) > 1:
        return f"{count} photographs with {len(cameras)} sizes or focal lengths: one camera for each"
    (camera,) = cameras
    focal = f"known focal length {camera.focal:.0f} px" if camera.focal else "focal length unknown (no EXIF)"
    return f"{count} photographs of {camera.size[0]}x{camera.size[1]} share one camera, {focal}"


def remarks(frames: Sequence[Frame]) -> list[str]:
    """Notes on how the photographs were read, and on those that look cropped by hand."""
    counts = Counter(itertools.chain.from_iterable(frame.remarks for frame in frames))
    notes = [f"{count} of {len(frames)} photographs: {remark}" for remark, count in counts.items()]
    if crops := [frame.source for frame in cropped(frames)]:
        notes.append(
            f"{len(crops)} of {len(frames)} photographs look cropped, by their sizes or EXIF: {listed(crops)}; each "
            "has a camera of its own, and unless their centres can be estimated, the shape is distorted by some per "
            "cent: use the uncropped photographs"
        )
    return notes


def cropped(frames: Sequence[Frame]) -> list[Frame]:
    """The frames that look cropped by hand: by EXIF, or as they have sizes of their own."""
    sizes = Counter(tuple(sorted((frame.width, frame.height))) for frame in frames)  # in any orientation
    own = [sizes[tuple(sorted((frame.width, frame.height)))] == 1 for frame in frames]
    is_own = sum(own) >= MIN_CROPPED
    return [frame for frame, alone in zip(frames, own, strict=True) if frame.is_cropped or alone & is_own]


def scaled_down(pixels: np.ndarray) -> np.ndarray:
    """`pixels` [H, W, ...] reduced by averaging areas until no side exceeds MAX_SIDE."""
    size, scale = size_within(size_of(pixels), MAX_SIDE)
    return pixels if scale == 1 else cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)


def is_tagged(path: Path) -> bool:
    """Whether the file has the tag of an equirectangular panorama and is twice as wide as high."""
    if not TAG.search(read_metadata(path).xmp):
        return False
    try:
        width, height = image_size(path)
    except ImageError:
        return False
    return width == 2 * height


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
