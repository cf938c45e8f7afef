"""Frames of a video: the sharpest of each interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from data.errors import UserError
from data.quiet import native_stderr_silenced

SHARPNESS_WIDTH = 640  # frames are compared at this width: noise of single pixels is no sharpness
Tick = Callable[[], None]


def sharpness(frame: np.ndarray) -> float:
    """Variance of the Laplacian of a frame [H, W, 3] uint8 (Pech-Pacheco et al., ICPR 2000): low where blurred."""
    grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
    if grey.shape[1] > SHARPNESS_WIDTH:
        height = max(1, round(grey.shape[0] * SHARPNESS_WIDTH / grey.shape[1]))
        grey = cv2.resize(grey, (SHARPNESS_WIDTH, height), interpolation=cv2.INTER_AREA)
    return float(cv2.Laplacian(grey, cv2.CV_64F).var())


def sharpest(values: Sequence[float], count: int) -> list[int]:
    """The index of the largest value in each of `count` even intervals; all of them where there are no more."""
    if len(values) <= count:
        return list(range(len(values)))
    edges = np.linspace(0, len(values), count + 1).round().astype(int)
    return [int(a + np.argmax(values[a:b])) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def choose_frames(path: Path, count: int, tick: Tick) -> list[int]:
    """The numbers of the `count` frames to take, ascending; `tick` is called for each frame looked at.

    Raises UserError for a file that is no video.
    """
    values = []
    for frame in _frames(path):
        values.append(sharpness(frame))
        tick()
    if not values:
        raise UserError(f"{path}: no frame of it can be decoded; give a video (MP4, say) or a folder of photographs")
    return sharpest(values, count)


def read_frames(path: Path, wanted: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """(number, RGB uint8 [H, W, 3]) of the wanted frames, which are ascending. OpenCV turns them upright itself."""
    remaining = iter(wanted)
    following = next(remaining, None)
    for number, frame in enumerate(_frames(path)):
        if number == following:
            yield number, cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
            following = next(remaining, None)
        if following is None:
            return


def is_video(path: Path) -> bool:
    """Whether a frame of the file can be decoded."""
    return next(_frames(path), None) is not None


def frame_count(path: Path) -> int | None:
    """How many frames the file claims to have; None where it is silent or absurd."""
    with native_stderr_silenced():
        video = cv2.VideoCapture(str(path))
    claimed = video.get(cv2.CAP_PROP_FRAME_COUNT)
    video.release()
    return int(claimed) if 0 < claimed < 1e9 else None


def _frames(path: Path) -> Iterator[np.ndarray]:
    """Every frame in turn, BGR."""
    with native_stderr_silenced():
        video = cv2.VideoCapture(str(path))
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
