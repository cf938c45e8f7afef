"""A scene in the viewer: cameras with photographs, points, the region of interest, and rectangles for masks.

All coordinates are in the working frame, where the region of interest is the unit sphere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import trimesh
from scipy.spatial.transform import Rotation

from data.cameras import mean_up
from data.scenes.region import in_digits
from data.scenes.scene import Scene, radius_of
from models.viewer.cameras import Cameras, fov_of, hit
from models.viewer.words import Words

if TYPE_CHECKING:
    import viser

FRUSTUM = 0.12  # height of a drawn camera, relative to the distance of the cameras
AWAY = 1.5  # initial distance of the browser's camera, relative to that of the cameras
MOST_POINTS = 100_000
POINT = 0.006  # radii
BLUE = (70, 130, 190)
DIGITS = 5  # of lengths in flags and confs
LARGEST_REGION = 4.0  # largest radius of the slider, relative to the current one


class SceneDisplay:
    """The parts of the display that do not depend on the model."""

    def __init__(
        self,
        server: viser.ViserServer,
        scene: Scene,
        words: Words,
        say: Callable[[str], None],
        is_alone: bool = False,
    ) -> None:
        """Build the display. `say` gets the flag of a region that was moved. `is_alone`: cameras, points and region are
        shown on request, beside a mesh.
        """
        self.server: Any = server  # by its types, an event may be of no browser
        self.scene, self.words, self._say = scene, words, say
        self.up = mean_up(scene.c2w)
        server.scene.set_up_direction(tuple(self.up))
        self.surface: trimesh.Trimesh | None = None  # the displayed mesh, working frame
        distance = self.distance = float(np.median(np.linalg.norm(scene.c2w[:, :3, 3], axis=1)))
        # the camera with the lowest elevation above the centre
        level = int(np.argmin(np.abs(scene.c2w[:, :3, 3] @ self.up)))
        eye = AWAY * distance * _unit(2.0 * _unit(scene.c2w[level, :3, 3]) + self.up)
        server.initial_camera.position, server.initial_camera.look_at = tuple(eye), (0.0, 0.0, 0.0)
        server.initial_camera.up = tuple(self.up)
        self._add_cameras(FRUSTUM * distance, not is_alone)
        self._add_points(not is_alone)
        self._add_region(not is_alone)

    def _add_cameras(self, scale: float, is_shown: bool) -> None:
        """A pyramid with its photograph for each camera; a click moves the browser's camera there."""
        self.cameras = Cameras(self.server.scene, self.scene, scale)
        self.cameras.show(is_shown)
        box = self.server.gui.add_checkbox(self.words("cameras"), is_shown)
        box.on_update(lambda _event: self.cameras.show(box.value))

        @self.cameras.photographs.on_click
        def _(event: Any) -> None:
            view = hit(self.cameras.bases, np.asarray(event.ray_origin), np.asarray(event.ray_direction))
            if event.client is not None and view is not None:
                look_through(event.client, self.scene, view)

    def _add_points(self, is_shown: bool) -> None:
        if self.scene.points is None or not len(self.scene.points.xyz):
            return
        every = max(1, len(self.scene.points.xyz) // MOST_POINTS)
        xyz, rgb = self.scene.points.xyz[::every], self.scene.points.rgb[::every]
        cloud = self.server.scene.add_point_cloud(
            "/points", xyz.astype(np.float32), rgb, point_size=POINT, precision="float32", visible=is_shown
        )
        box = self.server.gui.add_checkbox(self.words("points"), is_shown)

        @box.on_update
        def _(_event: Any) -> None:
            cloud.visible = box.value

    def _add_region(self, is_shown: bool) -> None:
        """A sphere with handles, its radius, and the flag that selects it."""
        self.region_folder = self.server.gui.add_folder(self.words("region"), expand_by_default=is_shown)
        with self.region_folder:
            shown = self.server.gui.add_checkbox(self.words("show_region"), is_shown)
            radius = self.server.gui.add_slider(self.words("radius"), 0.05, LARGEST_REGION, 0.01, 1.0)
            told = self.server.gui.add_markdown(self._told(np.zeros(3), 1.0))
        handle = self.server.scene.add_transform_controls(
            "/region", scale=0.5, disable_rotations=True, visible=is_shown
        )
        self.server.scene.add_icosphere("/region/sphere", 1.0, BLUE, wireframe=True, opacity=0.25)
        sphere = self.server.scene.get_handle_by_name("/region/sphere")
        self.region, self.radius = handle, radius

        def tell(is_final: bool) -> None:
            centre = np.asarray(handle.position, float)
            told.content = self._told(centre, radius.value)
            if is_final:
                self._say(roi_flag(self.scene, centre, radius.value))

        @handle.on_update
        def _(event: Any) -> None:
            tell(getattr(event, "phase", "end") == "end")

        @radius.on_update
        def _(_event: Any) -> None:
            sphere.scale = radius.value
            tell(True)

        @shown.on_update
        def _(_event: Any) -> None:
            handle.visible = shown.value

    def _told(self, centre: np.ndarray, radius: float) -> str:
        return f"{self.words('region_hint')}\n\n`{roi_flag(self.scene, centre, radius)}`"


def roi_flag(scene: Scene, centre: np.ndarray, radius: float) -> str:
    """The --roi flag for a sphere given in the working frame, in the world frame of the scene's cameras."""
    return f'--roi "{region_numbers(scene, centre, radius)}"'


def region_numbers(scene: Scene, centre: np.ndarray, radius: float) -> str:
    """The value of dataset.roi, "x y z r" in the world frame, for a sphere given in the working frame."""
    world, size = scene.scene_to_world @ np.append(centre, 1.0), radius_of(scene) * radius
    return " ".join([*in_digits(world[:3], size, DIGITS), f"{size:.{DIGITS}g}"])


def wxyz_of(c2w: np.ndarray) -> tuple[float, ...]:
    """The rotation of a pose as a quaternion in viser's order."""
    x, y, z, w = Rotation.from_matrix(c2w[:3, :3]).as_quat()
    return (w, x, y, z)


def pose_of(camera: Any) -> np.ndarray:
    """The pose [4, 4] of a browser's camera."""
    w, x, y, z = camera.wxyz
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_quat([x, y, z, w]).as_matrix()
    pose[:3, 3] = camera.position
    return pose


def look_through(client: Any, scene: Scene, view: int) -> None:
    """Move a browser's camera to that of a photograph."""
    with client.atomic():
        client.camera.wxyz = np.asarray(wxyz_of(scene.c2w[view]))
        client.camera.position = scene.c2w[view, :3, 3]
        client.camera.fov = fov_of(scene, view)


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 1e-9 else np.array([0.0, 0.0, 1.0])
