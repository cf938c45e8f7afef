"""What a trained model gives: pictures, meshes, videos, figures; each in the folder the published code writes it to."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import trimesh

from data.cameras import camera_rays, image_pixels, interpolate_pose
from data.errors import UserError
from data.io.files import write_result
from data.io.images import to_uint8, write_image
from data.io.quiet import native_stderr_silenced
from data.rays import Rays
from data.scenes.scene import Scene
from models.experiment import Experiment, held_out_scene
from models.kinds.protocol import Model, Moment
from models.surface.export import to_world, write_mesh
from models.surface.extraction import marching_cubes, sample_grid
from models.surface.metrics import chamfer, read_mesh
from models.views import figures
from models.views.chunks import ResultChunks
from models.views.figures import Figures, ViewFigures
from models.views.render import RenderedView, distance_picture, normal_picture, render_view
from models.views.shading import shade_mesh
from models.watch.logger import RunLogger

VIDEO_FRAMES = 60  # one way, as published; the way back repeats them
VIDEO_FRAMES_PER_SECOND = 30
A_MOMENT = 1.0  # seconds; a picture that takes more has a bar with the time left
INTERPOLATION_LEVEL = 4  # frames are a quarter of the photographs' size, as published


@dataclass(frozen=True)
class Snapshot:
    """A model at one step, with all that its results depend on."""

    experiment: Experiment
    model: Model
    step: int
    seconds: float  # of training so far
    background_rgb: np.ndarray | None  # [3], None for black
    log: RunLogger
    chunks: ResultChunks

    def render(self, rays: Rays, shape: tuple[int, int]) -> RenderedView:
        """The picture that rays [h * w] of shape (h, w) show; a bar tells how long, unless it is there at once."""
        chunk = self.chunks.rays(self.model, rays)
        moment = Moment(self.step, self.background_rgb)
        return render_view(self.model, rays, shape, chunk, moment, self._picture_bar)

    def _picture_bar(self, chunks: Iterable[int]) -> Iterable[int]:
        """The chunks of a picture, with a bar."""
        return self.log.progress(chunks, desc="picture", unit="chunk", leave=False, delay=A_MOMENT)

    def mask_first(self, scene: Scene) -> bool:
        """Whether the figures inside the masks of photographs count first."""
        return figures.mask_counts_first(scene, self.experiment.conf.train.mask_weight, self.background_rgb)


@dataclass(frozen=True)
class Evaluation:
    """The figures of a run; None where the conf names nothing to compare with.

    Those of pictures are means over the held-out views; see `Figures`.
    """

    step: int
    psnr: float | None  # dB, over whole pictures
    chamfer: float | None  # working-frame units, mean of both directions
    seconds: float  # of training, over all its sessions
    ssim: float | None
    psnr_mask: float | None
    ssim_mask: float | None
    iou: float | None
    counts_first: str | None  # "psnr" or "psnr_mask"
    views: tuple[ViewFigures, ...]


def validate_image(snapshot: Snapshot, view: int, resolution_level: int) -> Path:
    """Render a photograph's view; returns the picture of rendering, photograph and normals, one above the other.

    Normals and distances are written beside it.
    """
    experiment, scene = snapshot.experiment, snapshot.experiment.scene
    rendered = snapshot.render(*scene.rays(view, resolution_level))
    photograph = scene.rgb_image(view, resolution_level)
    normals = normal_picture(rendered.normal, scene.c2w[view])
    name = f"{snapshot.step:08d}_0_{view}"
    path = experiment.path("validations_fine", f"{name}.png")
    write_image(path, np.concatenate([to_uint8(rendered.rgb), to_uint8(photograph), normals]))
    write_image(experiment.path("normals", f"{name}.png"), normals)
    write_image(experiment.path("distances", f"{name}.png"), distance_picture(rendered.distance, rendered.opacity))
    distances = io.BytesIO()
    np.save(distances, rendered.distance)
    write_result(experiment.path("distances", f"{name}.npy"), distances.getvalue())
    compared = figures.compare(rendered, photograph, scene.mask_image(view, resolution_level))
    snapshot.log.info(f"view {view}: PSNR {figures.text(compared, snapshot.mask_first(scene))}, {path}")
    return path


def extract_mesh(snapshot: Snapshot, resolution: int, threshold: float | None) -> trimesh.Trimesh:
    """The surface in the working frame, at the model's own level for None.

    Raises EmptySurfaceError where there is none.
    """
    low, high = snapshot.experiment.scene.bbox_min, snapshot.experiment.scene.bbox_max
    surface = snapshot.model.level_set
    grid = sample_grid(
        surface.outward,
        low,
        high,
        resolution,
        snapshot.chunks.points(surface.outward),
        progress=lambda chunks: snapshot.log.progress(chunks, desc="surface", leave=False),
    )
    level = surface.threshold if threshold is None else threshold
    return marching_cubes(grid, level, low, high, surface.quantity)


def validate_mesh(snapshot: Snapshot, resolution: int, threshold: float | None) -> Path:
    """Write the surface, in world coordinates, to meshes/; raises EmptySurfaceError where there is none."""
    return _write_world_mesh(snapshot, extract_mesh(snapshot, resolution, threshold))


def _write_world_mesh(snapshot: Snapshot, mesh: trimesh.Trimesh) -> Path:
    """A mesh of the working frame to meshes/<step>.ply, in world coordinates."""
    world = to_world(mesh, snapshot.experiment.scene.scene_to_world)
    path = snapshot.experiment.path("meshes", f"{snapshot.step:08d}.ply")
    write_mesh(world, path)
    snapshot.log.info(f"mesh of {len(world.vertices)} vertices and {len(world.faces)} triangles, world frame: {path}")
    return path


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
        if _count_frames(temporary) != len(frames):
            raise UserError(f"the video {path} cannot be written: is the disk full, or the folder read-only?")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"the video {path} cannot be written ({error.strerror}); check the folder") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _count_frames(path: Path) -> int:
    """How many frames of the local file can be decoded; 0 where there is none."""
    with native_stderr_silenced():
        video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
        count = 0
        while video.read()[0]:
            count += 1
        video.release()
    return count


def evaluate(snapshot: Snapshot, resolution: int, threshold: float | None) -> Evaluation:
    """Figures against held-out views and the reference mesh, and the picture report/report.png to look at.

    Without held-out views the picture shows the first photograph's. Raises EmptySurfaceError where there is no mesh.
    """
    experiment = snapshot.experiment
    held_out = held_out_scene(experiment)
    scene = held_out or experiment.scene
    mask_first = snapshot.mask_first(scene)
    first = snapshot.render(*scene.rays(0))
    views = _compare_views(snapshot, held_out, first, mask_first) if held_out else ()
    mesh = extract_mesh(snapshot, resolution, threshold)
    _write_world_mesh(snapshot, mesh)
    reference = experiment.conf.dataset.reference_mesh
    evaluation = Evaluation(
        step=snapshot.step,
        chamfer=chamfer(mesh, read_mesh(reference)).chamfer if reference else None,
        seconds=snapshot.seconds,
        counts_first=("psnr_mask" if mask_first else "psnr") if held_out else None,
        views=views,
        **asdict(figures.mean(views)),
    )
    path = experiment.path("report", "report.png")
    write_image(path, _report_picture(scene, first, mesh, mask_first))
    content = json.dumps(asdict(evaluation), indent=1) + "\n"
    write_result(experiment.path("report", "report.json"), content.encode())
    _log_evaluation(snapshot.log, evaluation, path)
    return evaluation


def _compare_views(
    snapshot: Snapshot, held_out: Scene, first: RenderedView, mask_first: bool
) -> tuple[ViewFigures, ...]:
    """The figures of all held-out views, of which the first is rendered already; each is told in the text log."""
    views = []
    for view in snapshot.log.progress(range(held_out.n_views), desc="held-out views"):
        rendered = snapshot.render(*held_out.rays(view)) if view else first
        compared = figures.compare(rendered, held_out.rgb_image(view), held_out.mask_image(view))
        views.append(ViewFigures(**asdict(compared), view=held_out.image_names[view]))
        snapshot.log.note(f"held-out view {held_out.image_names[view]}: PSNR {figures.text(compared, mask_first)}")
    return tuple(views)


def _report_picture(scene: Scene, view: RenderedView, mesh: trimesh.Trimesh, mask_first: bool) -> np.ndarray:
    """Rendering | photograph | normals | shaded mesh of the scene's first view, uint8 [h, 4 w, 3].

    The photograph's background is greyed where the figures inside the mask count first.
    """
    height, width = view.rgb.shape[:2]
    photograph, mask = scene.rgb_image(0), scene.mask_image(0)
    if mask_first and mask is not None:
        photograph = figures.greyed(photograph, mask)
    shaded = shade_mesh(mesh, scene.intrinsics[0], scene.c2w[0], height, width)
    normals = normal_picture(view.normal, scene.c2w[0])
    return np.concatenate([to_uint8(view.rgb), to_uint8(photograph), normals, to_uint8(shaded)], axis=1)


def _log_evaluation(log: RunLogger, evaluation: Evaluation, picture: Path) -> None:
    """The figures, one a line."""
    if evaluation.views:
        mean = Figures(**{name: getattr(evaluation, name) for name in figures.NAMES})
        log.info(f"PSNR on held-out views: {figures.text(mean, evaluation.counts_first == 'psnr_mask')}")
    if evaluation.chamfer is not None:
        log.info(f"Chamfer distance to the reference mesh (unit sphere frame): {evaluation.chamfer:.4f}")
    log.info(f"training time: {evaluation.seconds:.0f} s for {evaluation.step} steps")
    log.info(f"rendering | photograph | normals | mesh: {picture}")
