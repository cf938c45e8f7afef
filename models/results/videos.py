"""Videos of a trained model: along a camera path, and between two photographs.

Files are H.264 if imageio-ffmpeg is installed, else VP9 by OpenCV; browsers play both. Frames along a path are kept on
disk until the video is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np

from data.cameras import camera_rays, image_pixels, interpolate_pose
from data.errors import UserError
from data.io.files import make_folder, remove, write_result
from data.io.headers import ImageError
from data.io.images import image_size, read_image, write_image
from data.io.streams import native_stderr_silenced
from data.io.untrusted import read_content
from data.pixels import to_uint8
from data.prepare.sources import frames as read_frames
from models.mesh.mesh import Surface
from models.requests import COLOUR, DEPTH, MESH, NORMALS, OF_FIELD, OF_MESH, SHAPE, VideoRequest
from models.results.camera_paths import CameraPath, Shot, film_level
from models.results.context import EvalContext
from models.results.meshes import finished_mesh
from models.results.render import distance_picture, normal_picture, paint_mesh, shade_mesh

FRAMES = "[0-9]" * 5 + ".png"  # file names of the frames
UNFINISHED = ".frames"  # suffix of the folder with the frames of an incomplete video
STAMP = "film.txt"  # file in that folder that identifies the video


def render(context: EvalContext, path: CameraPath, request: VideoRequest) -> Path:
    """Render the video and return its path; an interrupted video is resumed."""
    kinds = "_".join(request.shown)
    name = f"{context.step:08d}_{path.name}_{kinds}.mp4"
    target = request.output or context.experiment.path("render", name)
    is_video = target.suffix.lower() == ".mp4"
    folder = target.with_name(target.name + UNFINISHED) if is_video else target
    files = _frame_files(context, path, request, folder)
    missing = [(index, path.shots[index]) for index, file in enumerate(files) if not _is_whole(file)]
    if len(missing) < len(files):
        context.log.info(f"resuming: {len(files) - len(missing)} of {len(files)} frames exist already")
    surface = finished_mesh(context, request.mesh) if missing and set(request.shown) & set(OF_MESH) else None
    for index, shot in context.log.progress(missing, desc="frames"):
        write_image(files[index], _frame(context, path, request, shot, surface))
    if not is_video:
        context.log.info(f"{len(files)} frames: {target}")
        return target
    coded = write_video(target, (read_image(file) for file in files), path.fps)
    remove(folder)
    context.log.info(f"video of {len(files)} frames, {coded}: {target}")
    return target


def _frame_files(context: EvalContext, path: CameraPath, request: VideoRequest, folder: Path) -> list[Path]:
    """The file of every frame, in a folder that is created if needed; frames of another video are deleted from it.

    Raises UserError if the output folder contains other files or another video, or cannot be created.
    """
    try:
        make_folder(folder.parent, folder.name)
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise UserError(f"the folder {folder} cannot be created ({error.strerror}); choose another --output") from error
    files = [folder / f"{index:05d}.png" for index in range(len(path.shots))]
    stamp, wanted = folder / STAMP, _stamp(context, path, request)
    if names and STAMP not in names:
        raise UserError(
            f"--output {folder}: contains {names[0]}, which is not a frame of a video; name an empty or a new folder"
        )
    if names and read_content(stamp) != wanted:
        if folder == request.output:  # the existing frames belong to this video and may be complete
            raise UserError(
                f"--output {folder}: contains the frames of another video; name another folder, or delete it"
            )
        for frame in folder.glob(FRAMES):
            remove(frame)
    write_result(stamp, wanted)
    return files


def _stamp(context: EvalContext, path: CameraPath, request: VideoRequest) -> bytes:
    """A text that identifies the video."""
    digest = hashlib.sha256()
    for shot in path.shots:
        digest.update(shot.intrinsics.tobytes() + shot.c2w.tobytes())
    sizes = f"{path.width}x{path.height} / {request.level}"
    mesh = request.mesh if set(request.shown) & set(OF_MESH) else None
    parts = (context.step, context.seconds, ",".join(request.shown), sizes, mesh, digest.hexdigest())
    return "\n".join(map(str, parts)).encode()


def _is_whole(file: Path) -> bool:
    """Whether a complete frame exists; frames are written atomically."""
    try:
        return file.is_file() and min(image_size(file)) > 0
    except ImageError:
        return False


def _frame(
    context: EvalContext, path: CameraPath, request: VideoRequest, shot: Shot, surface: Surface | None
) -> np.ndarray:
    """One frame, uint8 [h, n w, 3], n images side by side."""
    pixels = image_pixels(path.width, path.height, request.level or 1)
    height, width = pixels.shape[:2]
    images: dict[str, np.ndarray] = {}
    if set(request.shown) & set(OF_FIELD):
        view = context.render(camera_rays(pixels, shot.intrinsics, shot.c2w), (height, width))
        away = float(np.linalg.norm(shot.c2w[:3, 3]))
        depth = distance_picture(view.distance, view.opacity, (away - 1.0, away + 1.0))
        images = {COLOUR: to_uint8(view.rgb), NORMALS: normal_picture(view.normal, shot.c2w)}
        images[DEPTH] = np.repeat(depth[..., None], 3, axis=-1)
    if surface is not None:
        lens = shot.intrinsics.copy()
        lens[:2] *= np.array([[width / path.width], [height / path.height]])
        if SHAPE in request.shown:
            images[SHAPE] = to_uint8(shade_mesh(surface.mesh, lens, shot.c2w, height, width))
        if MESH in request.shown:
            images[MESH] = to_uint8(paint_mesh(surface.mesh, surface.rgb, lens, shot.c2w, height, width))
    return np.concatenate([images[name] for name in request.shown], axis=1)


VIDEO_FRAMES = 60  # frames in one direction, as published; the way back repeats them


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
    coded = write_video(path, frames + frames[::-1], 30)
    context.log.info(f"video, {coded}: {path}")
    return path


FFMPEG_PACKAGE = "imageio_ffmpeg"
H264, VP9 = "H.264", "VP9"


def write_video(path: Path, frames: Iterable[np.ndarray], fps: float, wanted: str | None = None) -> str:
    """Write RGB uint8 frames [h, w, 3] of equal size as MP4; returns the codec.

    The file is renamed when complete and is read back. Odd sides are padded by one pixel, as the codecs require. Raises
    UserError if the file is incomplete: neither library reports a full disk.
    """
    coded = wanted or (VP9 if importlib.util.find_spec(FFMPEG_PACKAGE) is None else H264)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}").absolute()
    try:
        temporary.unlink(missing_ok=True)  # a link would redirect the output
        even = _even(frames)
        count, first = 0, next(even, None)
        if first is not None:
            size = first.shape[1], first.shape[0]
            count = (_h264 if coded == H264 else _vp9)(temporary, itertools.chain([first], even), size, fps)
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


def _vp9(path: Path, frames: Iterable[np.ndarray], size: tuple[int, int], fps: float) -> int:
    """Write frames of a size (width, height) with OpenCV; returns their number, 0 if it fails."""
    count = 0
    with native_stderr_silenced():
        writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"vp09"), fps, size)
        for frame in frames if writer.isOpened() else ():
            writer.write(frame[..., ::-1])
            count += 1
        writer.release()
    return count if path.exists() else 0


def _h264(path: Path, frames: Iterable[np.ndarray], size: tuple[int, int], fps: float) -> int:
    """Write frames of a size (width, height) with imageio-ffmpeg; returns their number."""
    import imageio_ffmpeg

    count, options = 0, {"fps": fps, "quality": 8, "macro_block_size": 2, "ffmpeg_log_level": "quiet"}
    with contextlib.closing(imageio_ffmpeg.write_frames(str(path), size, **options)) as writer:
        writer.send(None)
        for frame in frames:
            writer.send(frame)
            count += 1
    return count if path.exists() else 0
