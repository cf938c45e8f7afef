"""Draw rectangles on photographs in the viewer, for --mode prepare --masks box."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data.errors import UserError, reason
from data.io.files import is_file, read_regular, write_result
from data.pixels import eight_bits
from data.prepare.box_masks import carried, object_points
from data.scenes.scene import Scene
from models.viewer.scene_display import SceneDisplay, look_through, wxyz_of

BOXES_FILE = "boxes.json"  # in the scene folder
SCREEN = 720  # height of the displayed image in pixels
# distance of the image plane from the camera in radii; cameras and points are behind it
SHEET, AHEAD = "/photograph", 0.05
LINE, CARRIED_LINE = (255, 200, 0), (0, 220, 255)  # colours of drawn and of transferred rectangles
MOST_BYTES = 1 << 24


class Boxes:
    """Shows a photograph and records the rectangle drawn on it."""

    def __init__(self, stage: SceneDisplay, folder: Path, downscale: int, say: Callable[[str], None]) -> None:
        """`folder` is the scene folder, where boxes.json is written; its images are `downscale` times as large as the
        scene's.
        """
        self._stage, self._path, self._downscale, self._say = stage, folder / BOXES_FILE, downscale, say
        self._boxes = _read(self._path, say)
        server, words = stage.server, stage.words
        with server.gui.add_folder(words("masks"), expand_by_default=False):
            last = stage.scene.n_views - 1
            self.view = server.gui.add_slider(words("photograph"), 0, max(1, last), 1, 0, disabled=last == 0)
            look, draw = server.gui.add_button(words("look")), server.gui.add_button(words("draw"))
            leave, self._told = server.gui.add_button(words("leave")), server.gui.add_markdown("")
        look.on_click(lambda event: self._look(event.client))
        draw.on_click(lambda event: self._draw(event.client))
        leave.on_click(lambda event: event.client.scene.remove_by_name(SHEET))

    def _look(self, client: Any) -> int:
        """Move the browser's camera to that of the photograph and show it in front; returns the photograph's number."""
        view = min(int(self.view.value), self._stage.scene.n_views - 1)
        look_through(client, self._stage.scene, view)
        self._show(client, view)
        return view

    def _show(self, client: Any, view: int) -> None:
        """Show the photograph with its rectangle as an image plane in front of a browser's camera at its pose."""
        fov, aspect = float(client.camera.fov), float(client.camera.aspect)
        pose, tall = self._stage.scene.c2w[view], 2.0 * AHEAD * float(np.tan(0.5 * fov))
        client.scene.add_image(
            SHEET,
            self.seen(view, fov, aspect),
            tall * aspect,
            tall,
            format="jpeg",
            wxyz=wxyz_of(pose),
            position=pose[:3, 3] + AHEAD * pose[:3, 2],
        )

    def seen(self, view: int, fov: float, aspect: float) -> np.ndarray:
        """The photograph and its rectangle, uint8, as seen from its pose with `aspect` (width / height) and `fov`."""
        scene = self._stage.scene
        width = max(1, round(SCREEN * aspect))
        columns, rows = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(SCREEN) + 0.5) / SCREEN)
        pixels = to_pixels(scene, view, np.stack([columns, rows], axis=-1), fov, aspect).astype(np.float32)
        picture = eight_bits(scene.images[view]).copy()
        own = self._boxes.get(scene.image_names[view])
        box = self._carried().get(view) if own is None else np.divide(own, self._downscale)
        if box is not None:
            left, top, right, bottom = (round(float(corner)) for corner in box)
            line = CARRIED_LINE if own is None else LINE
            cv2.rectangle(picture, (left, top), (right, bottom), line, max(2, picture.shape[1] // 200))
        return cv2.remap(picture, pixels[..., 0], pixels[..., 1], cv2.INTER_LINEAR, borderValue=(40, 40, 40))

    def _carried(self) -> dict[int, np.ndarray]:
        """Rectangles transferred by the SfM points, [4] in scene pixels by view; {} with a warning if that fails."""
        scene = self._stage.scene
        drawn = {view: self._boxes[name] for view, name in enumerate(scene.image_names) if name in self._boxes}
        if not drawn:
            return {}
        shares = {view: np.divide(box, self._downscale * np.tile(scene.size(view), 2)) for view, box in drawn.items()}
        try:
            found = carried(scene, object_points(scene, shares), shares)
        except UserError as error:
            self._told.content = str(error)
            return {}
        return {view: box for view, box in enumerate(found) if box is not None}

    def _draw(self, client: Any) -> None:
        """Record the next rectangle that is drawn."""
        view = self._look(client)
        self._told.content = self._stage.words("draw_hint")
        client.scene.remove_rect_select_callback()  # the button was pressed twice

        @client.scene.on_rect_select()
        def _(event: Any) -> None:
            client.scene.remove_rect_select_callback()
            self.take(view, (event.screen_min, event.screen_max), float(client.camera.fov), float(client.camera.aspect))
            self._show(client, view)

    def take(self, view: int, corners: tuple, fov: float, aspect: float) -> None:
        """Save a rectangle given by its corners on the screen, as fractions of the window from the top left."""
        scene = self._stage.scene
        width, height = scene.size(view)
        # Coordinates in the file refer to the corner of the first pixel, not to its centre.
        ends = np.clip(to_pixels(scene, view, np.asarray(corners, float), fov, aspect) + 0.5, 0, (width, height))
        box = [round(float(corner), 1) for corner in (ends * self._downscale).reshape(-1)]
        if min(box[2] - box[0], box[3] - box[1]) < 2:
            return
        self._boxes[scene.image_names[view]] = box
        try:
            write_result(self._path, (json.dumps({"boxes": self._boxes}, indent=1) + "\n").encode())
        except UserError as error:
            self._say(f"box of {scene.image_names[view]}: {box}; {error}")
            return
        self._told.content = f"{len(self._boxes)} {self._stage.words('boxes_saved')} `{self._path}`"
        self._say(f"box of {scene.image_names[view]}: {box}, in {self._path}; --mode prepare --masks box reads it")


def to_pixels(scene: Scene, view: int, screen: np.ndarray, fov: float, aspect: float) -> np.ndarray:
    """Pixels [..., 2] of the photograph at fractions [..., 2] of a window that shows it from its pose."""
    tall = np.tan(0.5 * fov)
    rays = np.stack([(2 * screen[..., 0] - 1) * tall * aspect, (2 * screen[..., 1] - 1) * tall], axis=-1)
    found = np.concatenate([rays, np.ones_like(rays[..., :1])], axis=-1) @ scene.intrinsics[view].T
    return found[..., :2] / found[..., 2:]


def _read(path: Path, say: Callable[[str], None]) -> dict[str, list[float]]:
    """The rectangles in boxes.json; an unreadable file is logged and will be replaced."""
    try:
        if not is_file(path):
            return {}
        found = json.loads(read_regular(path, MOST_BYTES).decode("utf-8"))["boxes"]
        return {str(name): [float(corner) for corner in box] for name, box in found.items() if len(box) == 4}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        say(f"{path}: cannot be read ({reason(error)}); the first box that is drawn replaces it")
        return {}
