"""A scene with all tools that do not depend on a model, for `--mode inspect --view`; Jittor is not loaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data.scenes.scene import Scene
from models.viewer.boxes import Boxes
from models.viewer.camera_tools import CameraTools
from models.viewer.crop import ConfKeys, CropBox
from models.viewer.ruler import Ruler
from models.viewer.scene_display import SceneDisplay, words
from models.viewer.server import start, stop


def add_tools(
    stage: SceneDisplay, keys: ConfKeys, downscale: int, results: Path, say: Callable[[str], None]
) -> CropBox:
    """Add the tools to the page; camera paths are written to the folder `results`. Returns the crop box."""
    crop = CropBox(stage, keys, say)
    Boxes(stage, keys.folder, downscale, say)
    Ruler(stage, say)
    CameraTools(stage, results, say)
    return crop


A_MOMENT = 0.5  # polling interval in seconds


@dataclass(frozen=True)
class Place:
    """Address and language of the viewer."""

    host: str
    port: int
    language: str | None


def look_at_scene(scene: Scene, keys: ConfKeys, downscale: int, place: Place, say: Callable[[str], None]) -> None:
    """Show a scene until Ctrl-C; raises UserError if the server cannot be started.

    The images of the scene folder are `downscale` times as large as those of `scene`.
    """
    server = start(place.host, place.port, scene.name, say)
    add_tools(SceneDisplay(server, scene, words(place.language), say), keys, downscale, keys.folder, say)
    try:
        while True:
            time.sleep(A_MOMENT)
    except KeyboardInterrupt:
        say("the viewer is closed")
    finally:
        stop(server)
