"""Write frames as a video file: H.264 if imageio-ffmpeg is installed, else VP9 by OpenCV. Browsers play both."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np

from data.errors import UserError
from data.io.process import native_stderr_silenced
from data.prepare.sources import frames as read_frames

PACKAGE = "imageio_ffmpeg"
H264, VP9 = "H.264", "VP9"
VP9_CODE = "vp09"  # its name in MP4
H264_QUALITY = 8  # of 10, the scale of imageio-ffmpeg


def codec() -> str:
    """The codec of videos."""
    return H264 if importlib.util.find_spec(PACKAGE) is not None else VP9


def write_video(path: Path, frames: Iterable[np.ndarray], fps: float, wanted: str | None = None) -> str:
    """Write RGB uint8 frames [h, w, 3] of equal size as MP4; returns the codec.

    The file is renamed when complete and is read back. Odd sides are padded by one pixel, as the codecs require. Raises
    UserError if the file is incomplete: neither library reports a full disk.
    """
    coded = wanted or codec()
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}").absolute()
    try:
        temporary.unlink(missing_ok=True)  # a link would redirect the output
        count = (_h264 if coded == H264 else _vp9)(temporary, _even(frames), fps)
        if count == 0 or sum(1 for _ in read_frames(temporary)) != count:
            raise UserError(f"the video {path} cannot be written: is the disk full, or the folder read-only?")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"the video {path} cannot be written ({error.strerror or coded}); check the folder") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return coded


def _even(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Pad odd sides of the frames."""
    for frame in frames:
        height, width = frame.shape[:2]
        yield np.ascontiguousarray(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))


def _vp9(path: Path, frames: Iterator[np.ndarray], fps: float) -> int:
    """Write the frames with OpenCV; returns their number, 0 if it fails."""
    count, writer = 0, None
    with native_stderr_silenced():
        for frame in frames:
            if writer is None:
                size = (frame.shape[1], frame.shape[0])
                writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*VP9_CODE), fps, size)
                if not writer.isOpened():
                    return 0
            writer.write(frame[..., ::-1])
            count += 1
        if writer is not None:
            writer.release()
    return count if path.exists() else 0


def _h264(path: Path, frames: Iterator[np.ndarray], fps: float) -> int:
    """Write the frames with imageio-ffmpeg; returns their number."""
    import imageio_ffmpeg

    count, writer = 0, None
    try:
        for frame in frames:
            if writer is None:
                size = (frame.shape[1], frame.shape[0])
                options = {"fps": fps, "quality": H264_QUALITY, "macro_block_size": 2, "ffmpeg_log_level": "quiet"}
                writer = imageio_ffmpeg.write_frames(str(path), size, **options)
                writer.send(None)
            writer.send(frame)
            count += 1
    finally:
        if writer is not None:
            writer.close()
    return count if path.exists() else 0
