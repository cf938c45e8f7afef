"""Tools with handles that can be dragged: the crop box and the ruler.

The box is saved with the region of interest as keys of a conf, in the folder of the region; the ruler gives the scene
its real size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from scipy.spatial.transform import Rotation

from data.errors import UserError
from data.io.files import read_regular, write_result
from data.scenes.frustum import bounds, parse_bbox
from data.scenes.region import in_digits
from data.scenes.scene import Scene, radius_of
from models.config.hocon import quoted
from models.viewer.scene_display import DIGITS, SceneDisplay, region_numbers

CONF_FILE = "region.conf"  # in the scene folder
RED = (200, 60, 60)
# the twelve edges of a box, by the indices of its corners in the order of itertools.product
EDGES = tuple((a, b) for a, b in itertools.combinations(range(8), 2) if (a ^ b).bit_count() == 1)


@dataclass(frozen=True)
class ConfKeys:
    """The conf of the viewer and the values of the keys that it saves."""

    path: Path  # the conf file
    folder: Path  # the scene folder, where the new conf is written
    roi: str = ""  # dataset.roi
    bbox: str = ""  # dataset.bbox


class CropBox:
    """Two corners that can be dragged, the box between them, and the button that saves it."""

    def __init__(self, stage: SceneDisplay, keys: ConfKeys, say: Callable[[str], None]) -> None:
        """Add the box and its controls to the page; the box is shown on request."""
        self._stage, self._keys, self._say = stage, keys, say
        server, words, scene = stage.server, stage.words, stage.scene
        self._radius, self._centre = radius_of(scene), scene.scene_to_world[:3, 3]
        x, y, z, w = Rotation.from_matrix(scene.scene_to_world[:3, :3].T / self._radius).as_quat()
        # The frame has the axes of the world, so that the box is aligned with them, and unit and origin of the working
        # frame: browsers have single precision, too little for a world far from its origin.
        self._frame = server.scene.add_frame("/crop", show_axes=False, wxyz=(w, x, y, z), visible=bool(keys.bbox))
        low, high = ((parse_bbox(keys.bbox) if keys.bbox else world_box(scene)) - self._centre) / self._radius
        self.corners = [
            server.scene.add_transform_controls(
                f"/crop/{name}", scale=0.3, disable_rotations=True, position=tuple(corner)
            )
            for name, corner in (("low", low), ("high", high))
        ]
        self._lines = server.scene.add_line_segments(
            "/crop/edges", self._edges(), RED, thickness=2.0, thickness_units="screen"
        )
        with stage.region_folder:
            self.shown = server.gui.add_checkbox(words("crop"), bool(keys.bbox))
            save = server.gui.add_button(words("save_conf"))
            self._told = server.gui.add_markdown("")
        self.shown.on_update(self._show)
        save.on_click(lambda _event: self.save())
        for corner in self.corners:
            corner.on_update(self._moved)

    @property
    def box(self) -> np.ndarray:
        """The low and the high corner, float64 [2, 3], world frame."""
        ends = np.array([corner.position for corner in self.corners], float)
        return np.sort(ends, axis=0) * self._radius + self._centre

    def save(self) -> None:
        """Write the conf with the region of interest, if it was moved, and with the box, if it is shown."""
        path = self._keys.folder / CONF_FILE
        centre, radius = np.asarray(self._stage.region.position, float), float(self._stage.radius.value)
        is_moved = bool(centre.any()) or radius != 1.0
        roi = region_numbers(self._stage.scene, centre, radius) if is_moved else self._keys.roi
        bbox = " ".join(in_digits(self.box.reshape(-1), self._radius, DIGITS)) if self.shown.value else ""
        written = {"dataset.data_dir": str(self._keys.folder.resolve()), "dataset.roi": roi, "dataset.bbox": bbox}
        try:
            if bbox:
                parse_bbox(bbox)  # raises for a box without a volume
            write_result(path, conf_text(self._keys.path, path, written).encode())
        except UserError as error:
            self._told.content = str(error)
            return
        self._told.content = f"{self._stage.words('conf_saved')} `--conf {path}`"
        self._say(f"saved: pass --conf {path} in place of --conf {self._keys.path}")

    def _show(self, _event: Any) -> None:
        self._frame.visible = self.shown.value

    def _moved(self, _event: Any) -> None:
        self._lines.points = self._edges()

    def _edges(self) -> np.ndarray:
        """The edges of the box, float32 [12, 2, 3], in the frame /crop."""
        box = (self.box - self._centre) / self._radius
        corners = np.array(list(itertools.product(*box.T)), np.float32)
        return corners[np.array(EDGES)]


def world_box(scene: Scene) -> np.ndarray:
    """The smallest box [2, 3] in the world frame around the box of mesh extraction."""
    return bounds(np.stack([scene.bbox_min, scene.bbox_max]), scene.scene_to_world)


def conf_text(base: Path, path: Path, keys: dict[str, str]) -> str:
    """A conf, to be written to `path`, that includes `base` and sets `keys`; of a `base` at `path`, its lines but those
    of `keys` are kept. Raises UserError if that file cannot be read.
    """
    head = [f'include "{base.resolve()}"']
    if base.resolve() == path.resolve():
        try:
            lines = read_regular(path).decode("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); remove the file") from error
        head = [line for line in lines if line.partition("=")[0].strip() not in keys]
    return "\n".join([*head, *(f"{key} = {quoted(value)}" for key, value in keys.items())]) + "\n"


GREEN = (40, 150, 90)
HANDLE = 0.25  # radii
NEAR_RAY = 0.02  # radians: SfM points within this angle of a click may be meant
ENDS = ("A", "B")


class Ruler:
    """Two points that can be dragged, or selected by clicks on the mesh or on SfM points."""

    def __init__(self, stage: SceneDisplay, say: Callable[[str], None]) -> None:
        """Add the ruler and its controls to the page; the ruler is shown on request."""
        self._stage, self._say, self._next = stage, say, 0
        server, words = stage.server, stage.words
        self._frame = server.scene.add_frame("/ruler", show_axes=False, visible=False)
        self.ends = [
            server.scene.add_transform_controls(
                f"/ruler/{name}", scale=HANDLE, disable_rotations=True, position=(place, 0.0, 0.0)
            )
            for name, place in zip(ENDS, (-0.5, 0.5), strict=True)
        ]
        for name in ENDS:
            server.scene.add_label(f"/ruler/{name}/name", name)
        self._line = server.scene.add_line_segments(
            "/ruler/line", self._segment(), GREEN, thickness=3.0, thickness_units="screen"
        )
        with server.gui.add_folder(words("ruler"), expand_by_default=False):
            self.shown = server.gui.add_checkbox(words("show_ruler"), False)
            pick = server.gui.add_button(words("pick"))
            self.length = server.gui.add_number(words("real_length"), 1.0, min=1e-9, max=1e9, step=0.001)
            self.told = server.gui.add_markdown(self._text())
        self.shown.on_update(self._show)
        self.length.on_update(lambda _event: self._tell(True))
        pick.on_click(lambda event: self.pick(event.client))
        for end in self.ends:
            end.on_update(lambda event: self._tell(getattr(event, "phase", "end") == "end"))

    @property
    def points(self) -> np.ndarray:
        """Both points, float64 [2, 3], world frame."""
        to_world = self._stage.scene.scene_to_world
        return np.array([end.position for end in self.ends], float) @ to_world[:3, :3].T + to_world[:3, 3]

    @property
    def distance(self) -> float:
        """The distance of the points in world units."""
        return float(np.linalg.norm(self.points[1] - self.points[0]))

    def flag(self) -> str:
        """The flag that scales the scene so that the distance becomes the real length."""
        points = in_digits(self.points.reshape(-1), radius_of(self._stage.scene), DIGITS)
        return f"--scale {' '.join(points)} {self.length.value:.{DIGITS}g}"

    def pick(self, client: Any) -> None:
        """Move A, then B, to the next two clicks on the mesh or on an SfM point."""
        self.shown.value, self._next = True, 0
        self.told.content = self._stage.words("pick_hint")
        client.scene.remove_click_callback()  # the button was pressed twice

        @client.scene.on_click()
        def _(event: Any) -> None:
            self.take(np.asarray(event.ray_origin, float), np.asarray(event.ray_direction, float))
            if self._next == len(self.ends):
                client.scene.remove_click_callback()

    def take(self, origin: np.ndarray, direction: np.ndarray) -> None:
        """Move the next point to where a ray first meets the mesh, or to the SfM point nearest to the ray."""
        found = None if self._stage.surface is None else first_hit(self._stage.surface, origin, direction)
        if found is None and self._stage.scene.points is not None:
            found = nearest_to_ray(self._stage.scene.points.xyz, origin, direction)
        if found is None:
            self.told.content = self._stage.words("pick_missed")
            return
        self.ends[self._next].position = tuple(found)
        self._next += 1
        self._tell(self._next == len(self.ends))

    def _show(self, _event: Any) -> None:
        self._frame.visible = self.shown.value

    def _tell(self, is_final: bool) -> None:
        self._line.points = self._segment()
        self.told.content = self._text()
        if is_final:
            self._say(self.flag())

    def _text(self) -> str:
        words = self._stage.words
        return f"{words('distance')} {self.distance:.5g} {words('units')}\n\n`{self.flag()}`"

    def _segment(self) -> np.ndarray:
        return np.array([[end.position for end in self.ends]], np.float32)


def first_hit(mesh: trimesh.Trimesh, origin: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
    """Where a ray first meets a mesh [3]; None if it misses."""
    places = mesh.ray.intersects_location([origin], [direction], multiple_hits=False)[0]
    return places[0] if len(places) else None


def nearest_to_ray(points: np.ndarray, origin: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
    """The nearest of the points [N, 3] within NEAR_RAY of a ray; None if there is none."""
    unit = direction / np.linalg.norm(direction)
    along = (points - origin) @ unit
    aside = np.linalg.norm(points - origin - along[:, None] * unit, axis=1)
    is_near = (along > 0) & (aside < NEAR_RAY * along)
    return points[is_near][np.argmin(along[is_near])] if is_near.any() else None
