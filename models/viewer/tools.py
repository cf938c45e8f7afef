"""All tools of the viewer that do not depend on the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from models.viewer.boxes import Boxes
from models.viewer.camera_tools import CameraTools
from models.viewer.crop import ConfKeys, CropBox
from models.viewer.ruler import Ruler
from models.viewer.scene_display import SceneDisplay


def add_tools(
    stage: SceneDisplay, keys: ConfKeys, downscale: int, results: Path, say: Callable[[str], None]
) -> CropBox:
    """Add the tools to the page; camera paths are written to the folder `results`. Returns the crop box."""
    crop = CropBox(stage, keys, say)
    Boxes(stage, keys.folder, downscale, say)
    Ruler(stage, say)
    CameraTools(stage, results, say)
    return crop
