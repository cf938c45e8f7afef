"""A video between two photographs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import cv2
import numpy as np

from data.cameras import camera_rays, image_pixels, interpolate_pose
from data.errors import UserError
from data.io.images import to_uint8
from data.io.quiet import native_stderr_silenced
from data.prepare.video import frames as read_frames
from models.results.snapshot import Snapshot

VIDEO_FRAMES = 60  # one way, as published; the way back repeats them
VIDEO_FRAMES_PER_SECOND = 30
INTERPOLATION_LEVEL = 4  # frames are a quarter of the photographs' size, as published


def interpolate(snapshot: Snapshot, first: int, second: int) -> Path:
    """A video from one photograph's camera to another's and back, with the first one's intrinsics."""
    scene = snapshot.experiment.scene
    pixels = image_pixels(*scene.size(first), INTERPOLATION_LEVEL)
    frames = []
    for index in snapshot.log.progress(range(VIDEO_FRAMES), desc="frames"):
        ratio = np.sin((index / VIDEO_FRAMES - 0.5) * np.pi) * 0.5 + 0.5
        pose = interpolate_pose(scene.c2w[first], scene.c2w[second], ratio)
        rays = camera_rays(pixels, scene.intrinsics[first], pose)
        frames.append(to_uint8(snapshot.render(rays, pixels.shape[:2]).rgb))
    path = snapshot.experiment.path("render", f"{snapshot.step:08d}_{first}_{second}.mp4")
    _write_video(path, frames + frames[::-1])
    snapshot.log.info(f"video: {path}")
    return path


def _write_video(path: Path, frames: list[np.ndarray]) -> None:
    """RGB uint8 frames [h, w, 3] as MP4, renamed when complete and read back; raises UserError where it is not whole.

    OpenCV says nothing of a disk that takes no more.
    """
    height, width = frames[0].shape[:2]
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}").absolute()
    code = cv2.VideoWriter_fourcc(*"mp4v")
    try:
        temporary.unlink(missing_ok=True)  # a link there would lead elsewhere
        with native_stderr_silenced():
            writer = cv2.VideoWriter(str(temporary), cv2.CAP_FFMPEG, code, VIDEO_FRAMES_PER_SECOND, (width, height))
            for frame in frames if writer.isOpened() else ():
                writer.write(frame[..., ::-1])
            writer.release()
        if sum(1 for _ in read_frames(temporary)) != len(frames):
            raise UserError(f"the video {path} cannot be written: is the disk full, or the folder read-only?")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"the video {path} cannot be written ({error.strerror}); check the folder") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
