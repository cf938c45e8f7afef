"""Field of view, screenshots and camera paths in the viewer."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from data.errors import UserError
from data.io.files import write_result
from data.limits import limits_of
from models.requests import VideoRequest
from models.results.camera_paths import key_of
from models.viewer.scene_display import SceneDisplay, pose_of

PATH_FILE = "camera_path"
LARGEST_SCREENSHOT = 4096  # pixels per side
PURPLE = (140, 70, 170)
MARK = 0.05  # size of a key of the path, relative to the distance of the cameras
MOST_KEYS = 1000  # of a path


class CameraTools:
    """Controls of the browser's camera."""

    def __init__(self, stage: SceneDisplay, folder: Path, say: Callable[[str], None]) -> None:
        """Add the controls to the page; camera paths are written to `folder`."""
        self._stage, self._folder, self._say = stage, folder, say
        self._screenshots, self._capturing = 0, threading.Lock()
        self.keys: list[dict[str, object]] = []
        self._poses: list[np.ndarray] = []
        gui, words = stage.server.gui, stage.words
        with gui.add_folder(words("camera"), expand_by_default=False):
            initial = math.degrees(stage.server.initial_camera.fov)
            self.fov = gui.add_slider(words("fov"), 10.0, 120.0, 1.0, round(initial))
            screenshot = gui.add_button(words("screenshot"))
        with gui.add_folder(words("path"), expand_by_default=False):
            add, remove = gui.add_button(words("add_key")), gui.add_button(words("remove_key"))
            self.is_cycle = gui.add_checkbox(words("is_cycle"), False)
            most = limits_of(VideoRequest, "seconds")["at_most"]
            self.seconds = gui.add_number(words("seconds"), VideoRequest.seconds, min=0.1, max=most, step=0.5)
            save = gui.add_button(words("save_path"))
            self.message = gui.add_markdown("")

        @self.fov.on_update
        def _(event: Any) -> None:
            if event.client is not None:  # the browser that moved the slider
                event.client.camera.fov = math.radians(self.fov.value)

        screenshot.on_click(lambda event: threading.Thread(target=self._photograph, args=[event.client]).start())
        add.on_click(lambda event: self.add(pose_of(event.client.camera), math.degrees(event.client.camera.fov)))
        remove.on_click(lambda _event: self.remove())
        self.is_cycle.on_update(lambda _event: self._draw())
        save.on_click(lambda _event: self.save())

    def add(self, c2w: np.ndarray, fov: float) -> None:
        """Append a camera [4, 4] of the working frame with a vertical field of view in degrees to the path."""
        if len(self.keys) == MOST_KEYS:
            return
        self.keys.append(key_of(self._stage.scene, c2w, fov))
        self._poses.append(c2w)
        self._draw()

    def remove(self) -> None:
        """Remove the last camera of the path."""
        del self.keys[-1:], self._poses[-1:]
        self._draw()

    def save(self) -> None:
        """Write the path to a new file; the page shows the command that renders it."""
        words = self._stage.words
        if len(self.keys) < 2:
            self.message.content = words("path_short")
            return
        width, height = self._stage.scene.size(0)
        content: dict[str, Any] = {"width": width, "height": height, "fps": VideoRequest.fps}
        content |= {"seconds": float(self.seconds.value), "is_cycle": bool(self.is_cycle.value), "keys": self.keys}
        path, number = self._folder / f"{PATH_FILE}.json", 1
        while path.exists():
            number += 1
            path = self._folder / f"{PATH_FILE}_{number}.json"
        try:
            write_result(path, (json.dumps(content, indent=1) + "\n").encode())
        except UserError as error:
            self.message.content = str(error)
            return
        self.message.content = f"{words('path_saved')} `--mode render --path {path}`"
        self._say(f"camera path of {len(self.keys)} cameras saved; render it with --mode render --path {path}")

    def _photograph(self, client: Any) -> None:
        """Send the image of the browser's camera to the browser, as a PNG file of the size of its window."""
        camera = client.camera
        scale = min(1.0, LARGEST_SCREENSHOT / max(camera.image_width, camera.image_height))
        width, height = round(scale * camera.image_width), round(scale * camera.image_height)
        if not self._capturing.acquire(blocking=False):  # one at a time
            return
        try:
            pixels = client.get_render(height, width, transport_format="png", timeout=30.0)
        except Exception:  # noqa: BLE001 (viser's, or of a decoder)
            return  # the tab was closed, is in the background, or sent no image
        finally:
            self._capturing.release()
        # The background of the page is white; viser's image is transparent there.
        alpha = pixels[..., 3:] / 255.0 if pixels.shape[-1] == 4 else 1.0
        rgb = np.rint(alpha * pixels[..., :3] + (1.0 - alpha) * 255.0).astype(np.uint8)
        is_made, content = cv2.imencode(".png", np.ascontiguousarray(rgb[..., ::-1]))
        if is_made:
            self._screenshots += 1
            name = f"{self._stage.scene.name}_{self._screenshots:03d}.png"
            client.send_file_download(name, content.tobytes(), save_immediately=True)

    def _draw(self) -> None:
        """Show the cameras of the path and the line through them."""
        api, distance = self._stage.server.scene, self._stage.distance
        api.remove_by_name("/path")
        if not self._poses:
            self.message.content = ""
            return
        api.add_frame("/path", show_axes=False)
        for index, pose in enumerate(self._poses):
            api.add_label(f"/path/{index}", str(index + 1), position=pose[:3, 3])
            api.add_icosphere(f"/path/{index}/mark", 0.3 * MARK * distance, PURPLE)
        if len(self._poses) > 1:
            places = np.array([pose[:3, 3] for pose in self._poses])
            api.add_spline_catmull_rom(
                "/path/line", places, color=PURPLE, closed=bool(self.is_cycle.value) and len(places) > 2
            )
        self.message.content = f"{len(self._poses)} {self._stage.words('path_keys')}"
