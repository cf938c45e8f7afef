"""A scene in the viewer, for `--mode inspect --view`; Jittor is not loaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from data.scenes.scene import Scene
from models.viewer.crop import ConfKeys
from models.viewer.scene_display import SceneDisplay
from models.viewer.server import start, stop
from models.viewer.tools import add_tools
from models.viewer.words import words

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
