"""Sizes of images and films, as reduction factors of a photograph."""

from __future__ import annotations

from data.scenes.scene import Scene

PICTURE_LONGEST = 800  # longer side of a validation image in pixels: sharp on a screen, and a few seconds to render
FILM_LINES = 720  # height of a film of higher photographs in pixels, at least


def picture_level(scene: Scene, view: int, level: int) -> float:
    """The reduction factor of a validation image: `level`; for 0, the one that gives at most PICTURE_LONGEST pixels."""
    return level or max(1.0, max(scene.size(view)) / PICTURE_LONGEST)


def film_level(height: int) -> int:
    """The largest reduction factor that leaves FILM_LINES lines; 1 for lower photographs."""
    return max(1, height // FILM_LINES)
