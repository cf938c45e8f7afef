"""Copies the source images or video frames, upright and reduced, to the work folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data.errors import UserError
from data.io.files import write_result
from data.io.headers import focal_pixels, read_exif, upright
from data.io.images import WRITTEN_SUFFIXES, eight_bits, rgb_of, size_of, size_within, write_image
from data.prepare.panorama import cut, is_tagged, require_whole, view_name
from data.prepare.sources import MIN_IMAGES, choose_frames, frame_count, read_frames, read_source_image
from data.prepare.steps import Bar

# Longer sides are reduced to this. Features of larger images do not match better (COLMAP itself extracts them at 3200
# pixels), and the images of a scene are kept in memory during training.
MAX_SIDE = 2048


@dataclass(frozen=True)
class Frame:
    """An image of the work folder."""

    name: str  # of its file: a number, since COLMAP's lists are split at blanks
    source: str  # the source file, or the frame of the video, for messages
    width: int
    height: int
    focal: float | None  # pixels, from EXIF; None if unknown


@dataclass(frozen=True)
class Group:
    """Frames of one camera."""

    names: tuple[str, ...]
    size: tuple[int, int]  # (width, height)
    focal: float | None  # pixels


def copy_images(images: Sequence[Path], folder: Path, bar: Bar, is_panorama: bool = False) -> list[dict[str, object]]:
    """Copy each image into `folder`: unchanged if possible, else converted to upright 8-bit RGB PNG.

    Panoramas, by their tag or all of them, are cut into views. Returns the `Frame`s as dictionaries. Raises ImageError
    for a file that cannot be decoded, UserError for a copy that cannot be written and for an incomplete panorama.
    """
    folder.mkdir(parents=True, exist_ok=True)
    frames = []
    for number, path in enumerate(images):
        pixels = read_source_image(path)
        orientation, focal = read_exif(path)
        if is_panorama or is_tagged(path):
            whole = upright(rgb_of(eight_bits(pixels)), orientation)
            frames += [asdict(frame) for frame in _views(whole, folder, number, path.name)]
            bar.update()
            continue
        kept = pixels.dtype == np.uint8 and pixels.shape[2] != 4 and orientation == 1
        kept = kept and path.suffix.lower() in WRITTEN_SUFFIXES  # COLMAP reads them
        if kept and max(pixels.shape[:2]) <= MAX_SIDE:
            name, (height, width) = f"{number:04d}{path.suffix.lower()}", pixels.shape[:2]
            write_result(folder / name, path.read_bytes())
        else:
            name = f"{number:04d}.png"
            height, width = _write(folder / name, upright(rgb_of(eight_bits(pixels)), orientation))
        frame = Frame(name, path.name, width, height, focal and focal_pixels(focal, (width, height)))
        frames.append(asdict(frame))
        bar.update()
    return frames


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
        if is_panorama:
            frames += [asdict(view) for view in _views(frame, folder, position, f"frame {number}")]
            continue
        name = f"{position:04d}.png"
        height, width = _write(folder / name, frame)
        frames.append(asdict(Frame(name, f"frame {number}", width, height, None)))
    return frames


def _views(whole: np.ndarray, folder: Path, number: int, source: str) -> list[Frame]:
    """The perspective views of a panorama uint8 [H, 2 H, 3], written to `folder`."""
    require_whole(source, whole)
    frames = []
    for yaw, pixels, focal in cut(whole, MAX_SIDE):
        name, (height, width) = view_name(number, yaw), pixels.shape[:2]
        write_image(folder / name, pixels)
        frames.append(Frame(name, f"{source} ({yaw} degrees)", width, height, focal))
    return frames


def read_frame_list(value: Any) -> list[Frame]:
    """The stored result of `copy_images` or `copy_video`; raises one of `steps.MISREAD` for anything else."""
    frames = [Frame(**frame) for frame in value]
    for frame in frames:
        sizes = isinstance(frame.width, int) and isinstance(frame.height, int) and min(frame.width, frame.height) > 0
        names = isinstance(frame.name, str) and isinstance(frame.source, str) and Path(frame.name).name == frame.name
        if not (sizes and names and (frame.focal is None or float(frame.focal) > 0)):
            raise ValueError
    if len({frame.name for frame in frames}) < max(len(frames), MIN_IMAGES):
        raise ValueError
    return frames


def groups(frames: Iterable[Frame]) -> list[Group]:
    """The frames grouped by camera: frames of equal size and focal length share one."""
    by_camera: dict[tuple[int, int, float | None], list[str]] = {}
    for frame in frames:
        key = (frame.width, frame.height, frame.focal and round(frame.focal, 1))
        by_camera.setdefault(key, []).append(frame.name)
    return [Group(tuple(names), (key[0], key[1]), key[2] or None) for key, names in by_camera.items()]


def describe(cameras: Sequence[Group]) -> str:
    """One line about the cameras, for the log."""
    count = sum(len(camera.names) for camera in cameras)
    if len(cameras) > 1:
        return f"{count} photographs with {len(cameras)} sizes or focal lengths: one camera for each"
    (camera,) = cameras
    focal = f"known focal length {camera.focal:.0f} px" if camera.focal else "focal length unknown (no EXIF)"
    return f"{count} photographs of {camera.size[0]}x{camera.size[1]} share one camera, {focal}"


def _write(path: Path, pixels: np.ndarray) -> tuple[int, int]:
    """Write an image, reduced to MAX_SIDE if larger; returns (height, width)."""
    pixels = scaled_down(pixels)
    write_image(path, np.ascontiguousarray(pixels))
    return pixels.shape[0], pixels.shape[1]


def scaled_down(pixels: np.ndarray) -> np.ndarray:
    """`pixels` [H, W, ...] reduced by averaging areas until no side exceeds MAX_SIDE."""
    size, scale = size_within(size_of(pixels), MAX_SIDE)
    return pixels if scale == 1 else cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
