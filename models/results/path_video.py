"""`--mode render`: a video along a camera path. Frames are kept on disk until the video is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from data.cameras import camera_rays, image_pixels
from data.errors import UserError
from data.io.files import make_folder, remove, write_result
from data.io.headers import ImageError
from data.io.images import image_size, read_image, to_uint8, write_image
from models.mesh.mesh import Surface
from models.requests import COLOUR, DEPTH, MESH, NORMALS, OF_FIELD, OF_MESH, SHAPE, VideoRequest
from models.results.camera_paths import CameraPath, Shot
from models.results.context import EvalContext
from models.results.meshes import finished_mesh
from models.results.render import distance_picture, normal_picture
from models.results.shading import paint_mesh, shade_mesh
from models.results.video_file import write_video

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
    coded = write_video(target, _read(files), path.fps)
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
    if names and stamp.read_bytes() != wanted:
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
    told = (context.step, context.seconds, ",".join(request.shown), sizes, mesh, digest.hexdigest())
    return "\n".join(map(str, told)).encode()


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
    found: dict[str, np.ndarray] = {}
    if set(request.shown) & set(OF_FIELD):
        view = context.render(camera_rays(pixels, shot.intrinsics, shot.c2w), (height, width))
        away = float(np.linalg.norm(shot.c2w[:3, 3]))
        depth = distance_picture(view.distance, view.opacity, (away - 1.0, away + 1.0))
        found = {COLOUR: to_uint8(view.rgb), NORMALS: normal_picture(view.normal, shot.c2w)}
        found[DEPTH] = np.repeat(depth[..., None], 3, axis=-1)
    if surface is not None:
        lens = shot.intrinsics.copy()
        lens[:2] *= np.array([[width / path.width], [height / path.height]])
        if SHAPE in request.shown:
            found[SHAPE] = to_uint8(shade_mesh(surface.mesh, lens, shot.c2w, height, width))
        if MESH in request.shown:
            found[MESH] = to_uint8(paint_mesh(surface.mesh, surface.rgb, lens, shot.c2w, height, width))
    return np.concatenate([found[name] for name in request.shown], axis=1)


def _read(files: Sequence[Path]) -> Iterator[np.ndarray]:
    return (read_image(file) for file in files)
