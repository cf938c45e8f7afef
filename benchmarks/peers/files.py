"""The files that a task is given in: photographs, cameras and points for each kind of program. V views, P points.

All are in the unit-sphere frame. One camera: square pixels, the principal point in the middle
(`photographs.of_one_camera`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pycolmap
from scipy.spatial.transform import Rotation

from benchmarks.peers.photographs import Task
from data.io.files import write_result
from data.writers.neus import write_neus_scene
from models.surface.visibility import cameras_of, project

# Below the folder of the benchmark:
SCENE = "scene"  # the NeuS format, for this program; its photographs are those of all
IMAGES = "scene/image"
MODEL = "sparse"  # a COLMAP model as text
NVM = "scene.nvm"  # the format of VisualSFM, https://ccwu.me/vsfm/doc.html#nvm
ARRAYS = "photographs.npz"
CAMERA = 1  # the number of the only camera of the COLMAP model


def write_task(folder: Path, task: Task) -> None:
    """Write all files; raises UserError if that fails."""
    write_neus_scene(folder / SCENE, task.scene)
    write_colmap_model(folder / MODEL, task)
    write_result(folder / NVM, ("\n".join(nvm_lines(task)) + "\n").encode())
    content = io.BytesIO()
    np.savez(content, images=np.stack(task.scene.images), focal=task.scene.intrinsics[0, 0, 0])
    write_result(folder / ARRAYS, content.getvalue())


def write_colmap_model(folder: Path, task: Task) -> None:
    """cameras.txt, images.txt and points3D.txt; COLMAP measures pixels from the corner of the first one."""
    folder.mkdir(parents=True, exist_ok=True)
    scene, pixels = task.scene, _pixels(task)
    width, height = scene.size(0)
    (focal, _, x), (_, _, y) = scene.intrinsics[0][:2]
    model = pycolmap.Reconstruction()
    parameters = [focal, focal, x + 0.5, y + 0.5]
    model.add_camera_with_trivial_rig(
        pycolmap.Camera(model="PINHOLE", width=width, height=height, params=parameters, camera_id=CAMERA)
    )
    for view, name in enumerate(scene.image_names):
        world_to_camera = np.linalg.inv(scene.c2w[view])[:3]
        image = pycolmap.Image(
            name=name, keypoints=pixels[view][task.seen[view]] + 0.5, camera_id=CAMERA, image_id=view + 1
        )
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(world_to_camera))
    place = np.cumsum(task.seen, axis=1) - 1  # [V, P], the number of a point among those of its photograph
    for point, (xyz, rgb) in enumerate(zip(task.points.xyz, task.points.rgb, strict=True)):
        views = np.flatnonzero(task.seen[:, point])
        elements = [pycolmap.TrackElement(int(view) + 1, int(place[view, point])) for view in views]
        model.add_point3D(xyz, pycolmap.Track(elements), rgb)
    model.write_text(str(folder))


def nvm_lines(task: Task) -> Iterable[str]:
    """The lines of an NVM file; its photographs are named relative to it, and pixels are measured from the middle."""
    scene, pixels = task.scene, _pixels(task)
    yield "NVM_V3"
    yield str(scene.n_views)
    for view, name in enumerate(scene.image_names):
        x, y, z, w = Rotation.from_matrix(scene.c2w[view][:3, :3].T).as_quat()
        numbers = (scene.intrinsics[view][0, 0], w, x, y, z, *scene.c2w[view][:3, 3])
        yield f"{IMAGES}/{name} {_text(numbers)} 0 0"
    yield str(len(task.points.xyz))
    middles = scene.intrinsics[:, :2, 2]
    for point, (xyz, rgb) in enumerate(zip(task.points.xyz, task.points.rgb, strict=True)):
        views = np.flatnonzero(task.seen[:, point])
        places = [f"{view} {point} {_text(pixels[view, point] - middles[view])}" for view in views]
        yield f"{_text(xyz)} {' '.join(map(str, rgb))} {len(views)} {' '.join(places)}"


def _pixels(task: Task) -> np.ndarray:
    """[V, P, 2], where the photographs show the points; undefined where they do not."""
    return np.array([project(task.points.xyz, camera)[0] for camera in cameras_of(task.scene)])


def _text(numbers: Iterable[float]) -> str:
    return " ".join(f"{number:.9g}" for number in numbers)
