"""A scene in the viewer: cameras with photographs, points, the region of interest; the texts in two languages.

All coordinates are in the working frame, where the region of interest is the unit sphere. All photographs are one mesh
with one texture, and all edges one set of lines, so that a browser without a GPU, which shares the CPU with a training,
can draw hundreds of cameras.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import trimesh
from PIL import Image
from scipy.spatial.transform import Rotation

from data.cameras import affine, mean_up
from data.pixels import eight_bits, size_within
from data.scenes.region import in_digits
from data.scenes.scene import Scene, radius_of

if TYPE_CHECKING:
    import viser

THUMBNAIL = 200  # longer side of a photograph in the texture, in pixels, if there are few
TEXTURE = 4096  # texture size that every browser supports
EDGES = (90, 90, 90)
LINE_WIDTH = 1.5  # line width in pixels


class Cameras:
    """The drawn cameras, which can be hidden and clicked."""

    def __init__(self, api: Any, scene: Scene, scale: float) -> None:
        """Add pyramids of height `scale` to viser's scene."""
        self.bases = bases(scene, scale)
        picture, places = texture(scene)
        mesh = textured(self.bases, picture, places)
        self.photographs = api.add_mesh_trimesh("/cameras/photographs", mesh, cast_shadow=False, receive_shadow=False)
        self._edges = api.add_line_segments(
            "/cameras/edges",
            edges(self.bases, scene.c2w[:, :3, 3]),
            EDGES,
            thickness=LINE_WIDTH,
            thickness_units="screen",
        )

    def show(self, is_visible: bool) -> None:
        """Show or hide all cameras."""
        self.photographs.visible = self._edges.visible = is_visible


def fov_of(scene: Scene, view: int) -> float:
    """The vertical field of view of a photograph, radians."""
    return 2.0 * math.atan(0.5 * scene.size(view)[1] / float(scene.intrinsics[view, 1, 1]))


def bases(scene: Scene, scale: float) -> np.ndarray:
    """The corners [n, 4, 3] of the photographs at depth `scale`, clockwise from the top left."""
    tall = scale * np.tan([0.5 * fov_of(scene, view) for view in range(scene.n_views)])
    wide = tall * [width / height for width, height in map(scene.size, range(scene.n_views))]
    deep = np.full_like(tall, scale)
    local = np.stack(
        [np.stack([x * wide, y * tall, deep], -1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))], axis=1
    )
    return np.einsum("nij,nkj->nki", scene.c2w[:, :3, :3], local) + scene.c2w[:, None, :3, 3]


def texture(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """All photographs in one texture, uint8 [h, w, 3], and the texture coordinates [n, 4, 2] of their corners, y up."""
    columns = math.ceil(math.sqrt(scene.n_views))
    rows = -(-scene.n_views // columns)
    cell = min(THUMBNAIL, TEXTURE // columns)
    picture = np.zeros((rows * cell, columns * cell, 3), np.uint8)
    places = np.empty((scene.n_views, 4, 2))
    for view in range(scene.n_views):
        (width, height), _ = size_within(scene.size(view), cell)
        row, column = divmod(view, columns)
        small = cv2.resize(scene.images[view], (width, height), interpolation=cv2.INTER_AREA)
        top, left = row * cell, column * cell
        picture[top : top + height, left : left + width] = eight_bits(small)
        # The centres of the corner pixels, so that interpolation does not include neighbouring photographs.
        x, y = np.array([left + 0.5, left + width - 0.5]), np.array([top + 0.5, top + height - 0.5])
        places[view] = np.stack([x[[0, 1, 1, 0]], y[[0, 0, 1, 1]]], axis=-1)
    shares = places / (columns * cell, rows * cell)
    return picture, np.stack([shares[..., 0], 1.0 - shares[..., 1]], axis=-1)


def textured(corners: np.ndarray, picture: np.ndarray, places: np.ndarray) -> trimesh.Trimesh:
    """One unlit, double-sided textured rectangle per camera."""
    first = 4 * np.arange(len(corners))[:, None, None]
    faces = (first + [[0, 1, 2], [0, 2, 3]]).reshape(-1, 3)
    material = trimesh.visual.material.PBRMaterial(
        emissiveTexture=Image.fromarray(picture),
        emissiveFactor=[1.0, 1.0, 1.0],
        baseColorFactor=[0, 0, 0, 255],
        metallicFactor=0.0,
        roughnessFactor=1.0,
        doubleSided=True,
    )
    visual = trimesh.visual.TextureVisuals(uv=places.reshape(-1, 2), material=material)
    return trimesh.Trimesh(corners.reshape(-1, 3), faces, visual=visual, process=False)


def edges(corners: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The eight edges of each pyramid, float32 [8 n, 2, 3]."""
    around = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2)
    up = np.stack([corners, np.broadcast_to(centres[:, None], corners.shape)], axis=2)
    return np.concatenate([around, up], axis=1).reshape(-1, 2, 3).astype(np.float32)


def hit(corners: np.ndarray, origin: np.ndarray, direction: np.ndarray) -> int | None:
    """The camera with the photograph [n, 4, 3] that a ray hits first; None if it hits none."""
    right, down = corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    normal = np.cross(right, down)
    with np.errstate(divide="ignore", invalid="ignore"):  # the photograph is seen edge-on
        along = np.sum(normal * (corners[:, 0] - origin), axis=-1) / (normal @ direction)
        place = origin + along[:, None] * direction - corners[:, 0]
        across = np.sum(place * right, axis=-1) / np.sum(right * right, axis=-1)
        below = np.sum(place * down, axis=-1) / np.sum(down * down, axis=-1)
        is_met = (along > 0) & (across >= 0) & (across <= 1) & (below >= 0) & (below <= 1)
    return int(np.argmin(np.where(is_met, along, np.inf))) if is_met.any() else None


Words = Callable[[str], str]
CHINESE = "zh"
TEXTS = Path(__file__).with_name("words.json")  # by key, in English and Chinese
CAMERA_SIZE = 0.12  # height of a drawn camera, relative to the distance of the cameras
AWAY = 1.5  # initial distance of the browser's camera, relative to that of the cameras
MOST_SHOWN_POINTS = 100_000
POINT_RADIUS = 0.006  # radii
BLUE = (70, 130, 190)
LENGTH_DIGITS = 5  # of lengths in flags and confs


class SceneDisplay:
    """The parts of the display that do not depend on the model."""

    def __init__(
        self, server: viser.ViserServer, scene: Scene, words: Words, say: Callable[[str], None], is_alone: bool = False
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
        self._add_cameras(CAMERA_SIZE * distance, not is_alone)
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
        every = max(1, len(self.scene.points.xyz) // MOST_SHOWN_POINTS)
        xyz, rgb = self.scene.points.xyz[::every], self.scene.points.rgb[::every]
        cloud = self.server.scene.add_point_cloud(
            "/points", xyz.astype(np.float32), rgb, point_size=POINT_RADIUS, precision="float32", visible=is_shown
        )
        box = self.server.gui.add_checkbox(self.words("points"), is_shown)

        @box.on_update
        def _(_event: Any) -> None:
            cloud.visible = box.value

    def _add_region(self, is_shown: bool) -> None:
        """A sphere with handles, its radius, and the flag that selects it."""
        self.region_folder = self.server.gui.add_folder(self.words("region"), expand_by_default=is_shown)
        with self.region_folder:
            is_visible = self.server.gui.add_checkbox(self.words("show_region"), is_shown)
            radius = self.server.gui.add_slider(self.words("radius"), 0.05, 4.0, 0.01, 1.0)
            text = self.server.gui.add_markdown(self._region_text(np.zeros(3), 1.0))
        handle = self.server.scene.add_transform_controls(
            "/region", scale=0.5, disable_rotations=True, visible=is_shown
        )
        self.server.scene.add_icosphere("/region/sphere", 1.0, BLUE, wireframe=True, opacity=0.25)
        sphere = self.server.scene.get_handle_by_name("/region/sphere")
        self.region, self.radius = handle, radius

        def tell(is_final: bool) -> None:
            centre = np.asarray(handle.position, float)
            text.content = self._region_text(centre, radius.value)
            if is_final:
                self._say(roi_flag(self.scene, centre, radius.value))

        @handle.on_update
        def _(event: Any) -> None:
            tell(getattr(event, "phase", "end") == "end")

        @radius.on_update
        def _(_event: Any) -> None:
            sphere.scale = radius.value
            tell(True)

        @is_visible.on_update
        def _(_event: Any) -> None:
            handle.visible = is_visible.value

    def _region_text(self, centre: np.ndarray, radius: float) -> str:
        return f"{self.words('region_hint')}\n\n`{roi_flag(self.scene, centre, radius)}`"


def roi_flag(scene: Scene, centre: np.ndarray, radius: float) -> str:
    """The --roi flag for a sphere given in the working frame, in the world frame of the scene's cameras."""
    return f'--roi "{region_numbers(scene, centre, radius)}"'


def region_numbers(scene: Scene, centre: np.ndarray, radius: float) -> str:
    """The value of dataset.roi, "x y z r" in the world frame, for a sphere given in the working frame."""
    world, size = scene.scene_to_world @ np.append(centre, 1.0), radius_of(scene) * radius
    return " ".join([*in_digits(world[:3], size, LENGTH_DIGITS), f"{size:.{LENGTH_DIGITS}g}"])


def wxyz_of(c2w: np.ndarray) -> tuple[float, ...]:
    """The rotation of a pose as a quaternion in viser's order."""
    x, y, z, w = Rotation.from_matrix(c2w[:3, :3]).as_quat()
    return (w, x, y, z)


def pose_of(camera: Any) -> np.ndarray:
    """The pose [4, 4] of a browser's camera."""
    w, x, y, z = camera.wxyz
    return affine(Rotation.from_quat([x, y, z, w]).as_matrix(), camera.position)


def look_through(client: Any, scene: Scene, view: int) -> None:
    """Move a browser's camera to that of a photograph."""
    with client.atomic():
        client.camera.wxyz = np.asarray(wxyz_of(scene.c2w[view]))
        client.camera.position = scene.c2w[view, :3, 3]
        client.camera.fov = fov_of(scene, view)


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 1e-9 else np.array([0.0, 0.0, 1.0])


def words(language: str | None) -> Words:
    """A function from a key to its text. None selects the language of the terminal, as the server does not know the
    browser's.
    """
    spoken = language or os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    texts, index = json.loads(TEXTS.read_text(encoding="utf-8")), int(spoken.lower().startswith(CHINESE))
    return lambda key: texts[key][index]
