"""A video between two photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data.cameras import camera_rays, image_pixels, interpolate_pose
from data.io.images import to_uint8
from models.results.context import EvalContext
from models.results.sizes import film_level
from models.results.video_file import write_video

VIDEO_FRAMES = 60  # frames in one direction, as published; the way back repeats them
VIDEO_FRAMES_PER_SECOND = 30


def interpolate(context: EvalContext, first: int, second: int, level: int | None = None) -> Path:
    """A video from one photograph's camera to another's and back, with the first one's intrinsics.

    `level`: reduction factor of the frames; None for `film_level` (published: 4).
    """
    scene = context.experiment.views
    width, height = scene.size(first)
    pixels = image_pixels(width, height, level or film_level(height))
    frames = []
    for index in context.log.progress(range(VIDEO_FRAMES), desc="frames"):
        ratio = np.sin((index / VIDEO_FRAMES - 0.5) * np.pi) * 0.5 + 0.5
        pose = interpolate_pose(scene.c2w[first], scene.c2w[second], ratio)
        rays = camera_rays(pixels, scene.intrinsics[first], pose)
        frames.append(to_uint8(context.render(rays, (len(pixels), pixels.shape[1])).rgb))
    path = context.experiment.path("render", f"{context.step:08d}_{first}_{second}.mp4")
    coded = write_video(path, frames + frames[::-1], VIDEO_FRAMES_PER_SECOND)
    context.log.info(f"video, {coded}: {path}")
    return path
