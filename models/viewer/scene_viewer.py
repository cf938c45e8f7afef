"""A scene in the viewer, for `--mode inspect --view`; Jittor is not loaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data.scenes.scene import Scene
from models.viewer.boxes import Boxes
from models.viewer.scene_display import SceneDisplay
from models.viewer.server import start, stop
from models.viewer.words import words

A_MOMENT = 0.5  # polling interval in seconds


@dataclass(frozen=True)
class Place:
    """Address and language of the viewer."""

    host: str
    port: int
    language: str | None


def look_at_scene(scene: Scene, folder: Path, downscale: int, place: Place, say: Callable[[str], None]) -> None:
    """Show a scene until Ctrl-C; raises UserError if the server cannot be started.

    `folder` is the scene folder; its images are `downscale` times as large as those of `scene`.
    """
    server = start(place.host, place.port, scene.name, say)
    Boxes(SceneDisplay(server, scene, words(place.language), say), folder, downscale, say)
    try:
        while True:
            time.sleep(A_MOMENT)
    except KeyboardInterrupt:
        say("the viewer is closed")
    finally:
        stop(server)
