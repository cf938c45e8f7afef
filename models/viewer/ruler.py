"""A ruler in the viewer: two points, their distance, and the flag that gives the scene its real size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import trimesh

from data.scenes.region import in_digits
from data.scenes.scene import radius_of
from models.viewer.scene_display import DIGITS, SceneDisplay

GREEN = (40, 150, 90)
HANDLE = 0.25  # radii
LINE_WIDTH = 3.0  # pixels
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
            "/ruler/line", self._segment(), GREEN, thickness=LINE_WIDTH, thickness_units="screen"
        )
        with server.gui.add_folder(words("ruler"), expand_by_default=False):
            self.shown = server.gui.add_checkbox(words("show_ruler"), False)
            pick = server.gui.add_button(words("pick"))
            self.length = server.gui.add_number(words("real_length"), 1.0, min=1e-9, step=0.001)
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
