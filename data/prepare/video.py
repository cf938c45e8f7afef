"""Selects the sharpest frame of each interval of a video."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from data.errors import UserError
from data.io.quiet import native_stderr_silenced

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

SHARPNESS_WIDTH = 640  # frames are compared at this width, which suppresses pixel noise
Tick = Callable[[], None]


def sharpness(frame: np.ndarray) -> float:
    """Variance of the Laplacian of a frame [H, W, 3] uint8 (Pech-Pacheco et al., ICPR 2000); low if blurred."""
    grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
    if grey.shape[1] > SHARPNESS_WIDTH:
        height = max(1, round(grey.shape[0] * SHARPNESS_WIDTH / grey.shape[1]))
        grey = cv2.resize(grey, (SHARPNESS_WIDTH, height), interpolation=cv2.INTER_AREA)
    return float(cv2.Laplacian(grey, cv2.CV_64F).var())


def sharpest(values: Sequence[float], count: int) -> list[int]:
    """The index of the largest value in each of `count` equal intervals; all indices if there are not more."""
    if len(values) <= count:
        return list(range(len(values)))
    edges = np.linspace(0, len(values), count + 1).round().astype(int)
    return [int(a + np.argmax(values[a:b])) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def choose_frames(path: Path, count: int, tick: Tick) -> list[int]:
    """The ascending indices of the `count` selected frames; `tick` is called for each decoded frame.

    Raises UserError for a file that is not a video.
    """
    values = []
    for frame in frames(path):
        values.append(sharpness(frame))
        tick()
    if not values:
        raise UserError(f"{path}: no frame can be decoded; give a video, such as MP4, or a folder of photographs")
    return sharpest(values, count)


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
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
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
